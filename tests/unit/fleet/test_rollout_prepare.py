# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which run is taken up again, and what becomes of its hosts."""

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet import ledger as book
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import Options, with_hosts
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Quarantine

from apiary.fleet.hosts import FleetHost, Hosts
from apiary.rollout import prepare as rollout_prepare
from apiary.rollout.prepare import Request, prepare, prepare_again
from apiary.rollout.store import Store

FLEET = tuple(FleetHost(f"h{number}", domain=f"r{number % 2}") for number in range(1, 5))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _handle: None)
    Path("hosts.yml").write_text("gpu_hosts: {}")
    monkeypatch.setattr(rollout_prepare, "read_hosts", lambda *_asked: Hosts(FLEET, len(FLEET)))
    return Store(Path("artifacts"))


def request(check=False, **options):
    given = Options(inventory=("hosts.yml",), batches=("2",), **options)
    return Request("site", given, {}, None, None, check, None)


def begun(store, check=False, **options):
    made = prepare(request(check, **options))
    made.check_unmoved()
    store.save_run(made.run)
    return made.run


def resumed(store, before, **options):
    given = replace(request(), options=Options(**options), playbook=None)
    return prepare_again(given, before, store)


def ended(store, run, host, outcome):
    entry = book.Entry(run.id, 1, "ann", "ctl", run.asked, run.begun_at)
    kept = book.begin(store.ledger(host), entry)
    if outcome != "begun":
        kept = book.end(kept, replace(entry, ended_at=run.begun_at, outcome=outcome))
    store.save_ledger(kept)


def test_the_ledger_says_what_is_left(store):
    """Killed before the run's document said so, a host that is done is not done again."""
    run = begun(store)
    ended(store, run, "h1", "done")
    ended(store, run, "h2", "begun")
    again = resumed(store, run).run
    assert {one.host: one.outcome for one in again.hosts} == {
        "h1": "done", "h2": "waiting", "h3": "waiting", "h4": "waiting",
    }  # fmt: skip
    assert again.waves == run.waves


def test_who_went_on_meanwhile_is_not_gone_over(store):
    """Read before the lock is held: the other run may have ended in between."""
    run = begun(store)
    again = resumed(store, run)
    again.check_unmoved()
    first = replace(run.hosts[0], outcome="done")
    store.save_run(with_hosts(run, {first.host: first}))
    with pytest.raises(ApiaryError) as refusal:
        again.check_unmoved()
    assert refusal.value.findings[0].code == "FLEET-LOCKED"


def test_a_check_is_not_what_is_resumed(store):
    run = begun(store)
    begun(store, check=True)
    assert store.load_run("last").asked.check
    assert store.last_change() == run


def test_nothing_left_is_no_success(store):
    """Every host in quarantine: a run of none would end well."""
    for one in FLEET:
        place = Path("artifacts") / one.name
        place.mkdir(parents=True)
        (place / "quarantine.json").write_text(dumps(Quarantine(one.name, "", "no driver")))
    with pytest.raises(ApiaryError) as refusal:
        prepare(request())
    (told,) = refusal.value.findings
    assert (told.code, "no driver" in told.message) == ("FLEET-ALL-SKIPPED", True)
    assert prepare(request(include_quarantined=True)).run.hosts
