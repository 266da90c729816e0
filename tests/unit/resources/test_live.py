# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the running kernel: set, read back, remembered and put back."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources import live
from ansible_collections.apiary.instinct.plugins.modules import converge

from support.modules import run_module


@pytest.fixture
def kernel(capsys, tmp_path):
    """Two settings as files, and a module run over them."""
    (tmp_path / "numa_balancing").write_text("1\n")
    (tmp_path / "swappiness").write_text("60\n")

    def run(check_mode=False, **options):
        memory = str(tmp_path / "memory/before.json")
        resource = {"kind": "live", "remember": memory, **options}
        return run_module(converge, capsys, check_mode, resources=[resource])

    return tmp_path, run


def settings(root, **values):
    return [{"path": str(root / name), "value": value} for name, value in values.items()]


def test_what_differs_is_set_and_a_second_run_changes_nothing(kernel):
    root, run = kernel
    wanted = settings(root, numa_balancing="0", swappiness="60")
    assert [diff["after_header"] for diff in run(settings=wanted)["diff"]] == [
        str(root / "numa_balancing")
    ]
    assert (root / "numa_balancing").read_text() == "0\n"
    assert run(settings=wanted)["changed"] is False


def test_check_mode_tells_and_sets_nothing(kernel):
    root, run = kernel
    told = run(settings=settings(root, numa_balancing="0"), check_mode=True)
    assert told["changed"]
    assert told["diff"][0]["after"] == "0\n"
    assert (root / "numa_balancing").read_text() == "1\n"
    assert not (root / "memory").exists()


def test_absent_puts_back_what_was_there_before_the_first_change(kernel):
    root, run = kernel
    run(settings=settings(root, swappiness="10"))
    run(settings=settings(root, swappiness="5", numa_balancing="0"))
    told = run(settings=[], state="absent")
    assert told["changed"]
    assert (root / "swappiness").read_text() == "60\n"
    assert (root / "numa_balancing").read_text() == "1\n"
    assert run(settings=[], state="absent")["changed"] is False


def test_a_choice_is_compared_by_the_one_in_brackets(kernel):
    root, run = kernel
    (root / "enabled").write_text("always [madvise] never\n")
    assert run(settings=settings(root, enabled="madvise"))["changed"] is False
    assert run(settings=settings(root, enabled="always"), check_mode=True)["changed"]


def test_a_value_that_does_not_hold_is_one_finding(kernel, monkeypatch):
    root, run = kernel
    monkeypatch.setattr(live, "put", lambda path, value: None)
    told = run(settings=settings(root, numa_balancing="0"))
    assert told["failed"]
    assert "HOST-LIVE-SETTING" in told["msg"]
    assert "was set to 0 and reads 1" in told["msg"]


def test_a_setting_that_the_kernel_lacks_is_one_finding(kernel):
    root, run = kernel
    told = run(settings=settings(root, none="0"))
    assert told["failed"]
    assert "cannot be read" in told["msg"]


def test_a_damaged_memory_is_one_finding(kernel):
    root, run = kernel
    (root / "memory").mkdir()
    (root / "memory/before.json").write_text("{")
    told = run(settings=settings(root, numa_balancing="0"))
    assert "HOST-LIVE-SETTING" in told["msg"]
    assert (root / "numa_balancing").read_text() == "1\n"


def test_earlier_values_are_remembered_before_anything_is_set(kernel, monkeypatch):
    root, run = kernel

    def refuse(path, value):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(live, "put", refuse)
    told = run(settings=settings(root, numa_balancing="0"))
    assert "cannot be set" in told["msg"]
    memory = json.loads((root / "memory/before.json").read_text())
    assert memory == {str(root / "numa_balancing"): "1"}
