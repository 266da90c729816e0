# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""TLS from routers to replicas begins by rollouts; it is the last change that this lab sees."""

import pytest

from loss.fleet import await_true
from loss.load import under

BEGIN = ("-e", "loss_tls=true")


def in_the_clear(fleet, replica):
    """What /health says without TLS: 000 of one that does not speak so."""
    url = f"http://127.0.0.1:{replica.port}/health"
    return fleet.run(replica.host, f"curl -s -o /dev/null -w '%{{http_code}}' {url}", check=False)


@pytest.mark.night
def test_tls_begins_and_a_host_speaks_for_itself_alone(whole, add_row):
    with pytest.raises(AssertionError, match="ROLLOUT-NEW-PORTS"):
        whole.playbook("rollout", *BEGIN)
    hosts = sorted({replica.host for replica in whole.replicas})
    load = {"seconds": 880, "rate": 10.0, "requests": 20_000, "timeout_seconds": 60}
    for host in hosts:
        few = ("-e", f"target={host}", "-e", "rollout_max_unavailable=50%")
        with under(whole.load(**load)) as running:
            whole.playbook("rollout", *BEGIN, *few)
            whole.await_whole()
            took = running.now()
            running.go_on(5)
        report = add_row(f"TLS begins on {host} ({took:.0f} s)", running.report())
        assert report.failed == [], report.failed[:3]
        used = {one.replica for one in report.outcomes if one.started > took}
        assert used & {replica.name for replica in whole.replicas if replica.host == host}
    assert {in_the_clear(whole, replica) for replica in whole.replicas} == {"000"}
    keys = f"/etc/apiary/{whole.deployment}/credentials"
    assert whole.run(hosts[0], f"stat -c %a:%U {keys}/*.pem").strip() == "600:root"

    # Root on one host has another's certificate: whoever it is, it is not that host.
    thief, victim = whole.replicas[0], whole.replicas[-1]
    file = f"{keys}/{whole.deployment}.pem"
    own, other = (whole.run(host, f"cat {file}") for host in (thief.host, victim.host))
    whole.run(thief.host, f"cat > {file} <<'END'\n{other}\nEND")
    with under(whole.load(**load)) as running:
        whole.run(thief.host, f"systemctl restart {thief.unit}")
        restarted = running.now()
        whole.await_out({thief.name})
        running.go_on(5)
    report = add_row("a replica with another host's certificate", running.report())
    assert report.failed == [], report.failed[:3]
    late = [one for one in report.outcomes if one.started > restarted]
    assert late
    assert thief.name not in {one.replica for one in late}
    whole.run(thief.host, f"cat > {file} <<'END'\n{own}\nEND")
    whole.run(thief.host, f"systemctl restart {thief.unit}")
    await_true(whole.whole, 120, "its own certificate has it back")
