# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sessions stay where they are, whichever router is asked."""

from collections import Counter

from loss.load import under


def test_sessions_stay_over_a_reload_and_at_both_routers(whole, add_row):
    """Every key has one replica at both routers, before and after a reload."""
    whole.await_settled()
    with under(whole.load(rate=60, seconds=60, keyed=1.0, keys=60, tokens=4)) as running:
        running.go_on(4)
        for router in whole.routers:
            whole.run(router, "systemctl reload haproxy")
        running.go_on(4)
    report = add_row("reload of both routers, all keyed", running.report())
    assert report.failed == []
    answered = Counter((one.key, one.replica) for one in report.outcomes)
    homes = report.homes()
    # What left the replica that answered most of its key's requests.
    moved = sum(answered.values()) - sum(
        max(answered[key, replica] for replica in replicas) for key, replicas in homes.items()
    )
    assert moved <= len(report.outcomes) * 0.001, f"{moved} of {len(report.outcomes)} moved"
    assert len(homes) >= 50
    assert set().union(*homes.values()) == {replica.name for replica in whole.replicas}
    assert len({one.router for one in report.outcomes}) == 2
