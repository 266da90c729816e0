# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What bundle_info shows of a host: bounded, and never a file that holds a secret."""

import pytest
from ansible_collections.apiary.instinct.plugins.modules import bundle_info as bundle_look
from ansible_collections.apiary.instinct.plugins.modules.bundle_info import Look
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge

SOURCES = dict(knowledge("evidence.yml")["bundle"])


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Files of a host, and commands that answer by their name."""
    made = {
        "etc/apiary/demo/replica-0.json": "{}",
        "etc/apiary/demo/credentials/TOKEN": "secret",
        "etc/apiary/demo/tls.pem": "secret",
        "etc/apiary/demo/a-password.json": "secret",
        "proc/cmdline": "root=/dev/vda",
    }
    for name, text in made.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    patterns = ("/proc/cmdline", "/etc/apiary/*/*.json", "/etc/apiary/*/*.pem", "/etc/apiary/*/*/*")
    monkeypatch.setitem(SOURCES, "files", [f"{tmp_path}{one}" for one in patterns])
    return tmp_path


def run(argv):
    if argv[0] == "systemctl" and "list-units" in argv:
        return 0, "apiary-demo-0.service loaded active running\nhaproxy.service loaded active\n", ""
    if argv[0] == "journalctl":
        return 0, f"{argv[1]} begin {'x' * 100} the end", ""
    if argv[0] == "rocm-smi":
        return 127, "", "rocm-smi: No such file or directory"
    if argv[0] == "timedatectl":
        return 1, "", "no bus\nand more"
    return 0, " ".join(argv), ""


def look(**limits):
    given = {"since": "1 hour ago", "lines": 10, "item_bytes": 4096, "total_bytes": 65536} | limits
    made = Look(run, SOURCES, **given)
    made.everything()
    return made


def test_units_their_journals_and_files(host):
    made = look()
    assert made.items[f"files{host}/proc/cmdline"] == "root=/dev/vda"
    for unit in ("apiary-demo-0.service", "haproxy.service"):
        assert made.items[f"units/{unit}.cat"].endswith(f"cat {unit}")
        assert f"--unit={unit}" in made.items[f"journals/{unit}.log"]


def test_certain_files_are_never_read(host):
    made = look()
    assert f"files{host}/etc/apiary/demo/replica-0.json" in made.items
    assert "secret" not in made.items.values()


def test_of_a_units_state_its_environment_is_no_part(host):
    state = look().items["units/haproxy.service.show"]
    assert "ActiveState" in state
    assert "Environment" not in state
    assert "ExecStart," not in state


def test_the_hosts_credentials_are_returned_to_be_masked(host, monkeypatch):
    monkeypatch.setattr(bundle_look, "CREDENTIALS", (f"{host}/etc/apiary/*/credentials/*",))
    assert Look(run, SOURCES, "1 hour ago", 10, 4096, 65536).secrets() == ["secret"]


def test_what_is_not_installed_is_no_problem_and_what_fails_is(host):
    made = look()
    assert "commands/rocm-smi-driver.txt" not in {**made.items, **made.problems}
    assert made.problems["commands/clock.txt"] == "no bus"


def test_a_long_journal_keeps_its_end(host):
    made = look(item_bytes=20)
    assert made.items["journals/kernel.log"].endswith("the end")
    assert made.problems["journals/kernel.log"] == "cut to 20 characters"


def test_a_host_is_no_larger_than_it_may_be(host):
    made = look(total_bytes=300)
    assert sum(map(len, made.items.values())) <= 300
    assert "left out" in made.problems["journals/kernel.log"]
