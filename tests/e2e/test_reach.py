# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Routers and monitoring alone reach the ports of replicas; the host itself always does."""

import subprocess
import urllib.error
import urllib.request

import pytest

from support.host.lab import connected

from .conftest import INVENTORY

pytestmark = pytest.mark.double

PATHS = ("/health", "/metrics", "/v1/models", "/invocations")


def answers(url):
    """Whether something answers, whatever it says; from this machine."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def address(variables):
    return variables["apiary_address"]


@pytest.fixture(scope="module")
def router():
    """A router of the lab over SSH."""
    name = sorted(INVENTORY["routers"]["hosts"])[0]
    return connected(INVENTORY["_meta"]["hostvars"][name])


@pytest.fixture(scope="module")
def closed(serve, plan, host):
    """The ports without this machine among those who may; afterwards as they were."""
    units = " ".join(replica["unit"] for replica in plan["replicas"])
    before = host.check_output(f"systemctl show --property=InvocationID {units}")
    serve(replicas_reach_from=[])
    yield
    serve()
    # Whoever may reach them changed twice, and no replica was restarted.
    assert host.check_output(f"systemctl show --property=InvocationID {units}") == before


def ports(plan):
    return [replica["port"] for replica in plan["replicas"]]


def test_this_machine_is_let_in_by_the_inventory_of_the_lab(address, plan):
    assert all(answers(f"http://{address}:{port}/health") for port in ports(plan))


@pytest.mark.usefixtures("closed")
def test_others_reach_no_path_of_a_replica(address, plan):
    assert not any(
        answers(f"http://{address}:{port}{path}") for port in ports(plan) for path in PATHS
    )


@pytest.mark.usefixtures("closed")
def test_others_do_not_reach_what_the_engine_opens_for_itself(address, plan):
    blocks = [replica["internal_port"] for replica in plan["replicas"]]
    refused = subprocess.run(
        ["timeout", "5", "bash", "-c", f"exec 3<>/dev/tcp/{address}/{blocks[0] + 15}"], check=False
    )
    assert refused.returncode == 1


@pytest.mark.usefixtures("closed")
def test_routers_and_the_host_itself_reach_every_replica(host, router, address, plan):
    for port in ports(plan):
        for where, url in (
            (router, f"http://{address}:{port}/health"),
            (host, f"http://{address}:{port}/health"),
            (host, f"http://127.0.0.1:{port}/metrics"),
        ):
            where.check_output(f"curl --silent --fail --max-time 5 --output /dev/null {url}")


@pytest.mark.usefixtures("closed")
def test_the_rules_are_back_after_the_host_s_own_were_loaded(host, upload, address, plan):
    """What loads them flushes all there are; here ours alone, for Docker has some of its own."""
    name = plan["deployment"]["name"]
    folder = "/run/systemd/system/nftables.service.d"
    host.check_output(f"mkdir -p {folder}")
    drop_in = "[Service]\nExecStart=\nExecStart=-{}\nExecReload=\nExecStop=\n"
    try:
        flush = f"/usr/sbin/nft delete table inet apiary-{name}"
        for command, verb in (("/bin/true", "start"), (flush, "restart")):
            upload(f"{folder}/flush.conf", drop_in.format(command))
            host.check_output("systemctl daemon-reload")
            host.check_output(f"systemctl {verb} nftables.service")
            # Ours starts after it, which nobody waits for.
            there = f"nft list table inet apiary-{name}"
            host.check_output(f"timeout 30 sh -c 'until {there}; do sleep 0.1; done'")
            assert not answers(f"http://{address}:{ports(plan)[0]}/health")
    finally:
        host.check_output("systemctl stop nftables.service")
        host.check_output(f"rm -r {folder}")
        host.check_output("systemctl daemon-reload")
        host.check_output(f"systemctl start apiary-{name}-ports.service")


@pytest.mark.usefixtures("closed")
def test_the_unit_that_loads_them_may_do_nothing_else(host, plan):
    unit = f"apiary-{plan['deployment']['name']}-ports.service"
    line = host.check_output(f"systemd-analyze security --no-pager {unit}").splitlines()[-1]
    assert float(line.split(":")[1].split()[0]) < 3, line


def test_they_open_again_without_a_trace(serve, host, address, plan):
    serve(replicas_ports_closed=False)
    try:
        assert answers(f"http://{address}:{ports(plan)[0]}/metrics")
        assert "apiary" not in host.check_output("nft list ruleset")
        assert host.run(
            "ls /etc/apiary/*/ports.nft /etc/systemd/system/apiary-*-ports.service"
        ).failed
    finally:
        serve()
