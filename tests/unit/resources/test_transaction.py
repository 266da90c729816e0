# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Package work: its order, what is refused before it begins, and what a failure means."""

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.packages.managers import MANAGERS
from ansible_collections.apiary.instinct.plugins.module_utils.resources import transaction, types
from ansible_collections.apiary.instinct.plugins.modules import converge

from support.modules import run_module

HEADERS = "linux-headers-6.1.0-28-amd64"
DRIVER = {
    "name": "amdgpu-dkms",
    "version": "1:6.16.13.30300400-*",
    "spec": "amdgpu-dkms=1:6.16.13.30300400-*",
}
EXACT = "amdgpu-dkms=1:6.16.13.30300400-2341068.22.04"
REPAIR = ["dpkg", "--configure", "-a"]
PLAN = {
    "manager": "apt",
    "packages": [DRIVER],
    "install": [[HEADERS], [DRIVER["spec"]]],
    "remove": ["amdgpu-install"],
    "unhold": ["amdgpu-dkms"],
    "dkms": [["dkms", "install", "amdgpu/6.16.13", "-k", "6.1.0-28-amd64"]],
    "initramfs": ["update-initramfs", "-u", "-k", "all"],
    "hold": ["amdgpu-dkms"],
}


class Host:
    """The answers of a host's tools; ``failing`` has how often a command with that word fails."""

    def __init__(self, offered=(HEADERS, EXACT), said="", **failing):
        self.offered, self.said, self.failing, self.told = offered, said, failing, []

    def run(self, argv):
        if argv[0] == "apt-cache":
            name = argv[-1]
            versions = [one.partition("=")[2] or "1.0" for one in self.offered
                        if one.partition("=")[0] == name]  # fmt: skip
            return 0, "".join(f"{name} | {version} | r\n" for version in versions)
        self.told.append(MANAGERS["apt"](self.run).shown(argv))
        for word, times in self.failing.items():
            if word in argv or word in " ".join(argv):
                self.failing[word] = times - 1
                if times > 0:
                    return 100, self.said
        return 0, ""


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(types, "DUE", str(tmp_path / "due"))

    def run(host, check=False, **options):
        monkeypatch.setattr(transaction, "runner", lambda _module: host.run)
        resource = {"kind": "transaction", "name": "rocm", **options}
        result = run_module(converge, capsys, check, resources=[resource])
        reports = result["resources"]
        result["steps"] = [step for each in reports for step in each["steps"]]
        found = [finding for each in reports for finding in each["findings"]]
        result["lacking"] = [finding["subject"] for finding in found]
        return result

    return run


def verbs(host):
    return [
        " ".join(argv[:1] + [w for w in argv[1:] if not w.startswith("-")]) for argv in host.told
    ]


def test_everything_happens_in_its_order_and_exact_versions_are_asked_for(run):
    host = Host()
    assert run(host, **PLAN)["changed"]
    assert verbs(host) == [
        "apt-get update",
        "apt-mark unhold amdgpu-dkms",
        "apt-get purge amdgpu-install",
        f"apt-get install {HEADERS}",
        f"apt-get install {EXACT}",
        "dkms install amdgpu/6.16.13 6.1.0-28-amd64",
        "update-initramfs all",
        "apt-mark hold amdgpu-dkms",
    ]


OLD = "linux-headers-6.1.0-9-amd64"
OFFER = {
    "kernel": "6.1.0-9-amd64",
    "packages": [OLD],
    "dkms": [["dkms", "install", "amdgpu/6.16.13", "-k", "6.1.0-9-amd64"]],
    "initramfs": ["update-initramfs", "-u", "-k", "all"],
}


def test_what_is_optional_comes_with_the_first_stage_where_it_can_be_had(run):
    host = Host(offered=(OLD, HEADERS, EXACT))
    told = run(host, manager="apt", packages=PLAN["packages"], install=PLAN["install"],
               optional=[OFFER])  # fmt: skip
    assert verbs(host) == [
        "apt-get update",
        "apt-get update",
        f"apt-get install {HEADERS} {OLD}",
        f"apt-get install {EXACT}",
        "dkms install amdgpu/6.16.13 6.1.0-9-amd64",
        "update-initramfs all",
    ]
    assert told["lacking"] == []
    alone = Host(offered=(OLD,))
    assert run(alone, check=True, manager="apt", optional=[OFFER])["steps"][0].endswith(OLD)
    assert alone.told == []


def test_what_is_optional_and_gone_changes_nothing(run):
    host = Host()
    told = run(host, manager="apt", optional=[OFFER], hold=[OLD])
    assert (told["changed"], told["lacking"]) == (False, [OLD])
    assert [finding["severity"] for finding in told["findings"]] == ["warning"]
    assert verbs(host) == ["apt-get update"]


def test_initial_ramdisks_that_a_run_still_owed_are_made_by_the_next(run):
    """What is removed shows no more that they still hold it."""
    owing = Host(**{"update-initramfs": 1})
    failed = run(owing, manager="apt", remove=["amdgpu-dkms"], initramfs=PLAN["initramfs"])
    assert failed["failed"]
    host = Host()
    assert run(host, check=True, manager="apt")["steps"] == ["update-initramfs -u -k all"]
    assert run(host, manager="apt")["changed"]
    assert verbs(host) == ["update-initramfs all"]
    assert not run(host, manager="apt")["changed"]


def test_empty_lists_do_nothing(run):
    host = Host()
    result = run(host, manager="apt", install=[[], []])
    assert (result["changed"], host.told) == (False, [])


def test_check_mode_tells_the_steps_and_runs_none(run):
    host = Host()
    result = run(host, check=True, **PLAN)
    assert result["changed"]
    assert host.told == []
    assert result["steps"][0] == "apt-mark unhold amdgpu-dkms"
    assert len(result["steps"]) == 7


@pytest.mark.parametrize(
    ("offered", "code", "words"),
    [
        ((EXACT,), "ROCM-PACKAGE-MISSING", "remove the old one"),
        ((HEADERS,), "ROCM-PACKAGE-MISSING", "enable the repository"),
        ((HEADERS, "amdgpu-dkms=1:6.16.6-1"), "ROCM-PACKAGE-VERSION", "found 1:6.16.6-1"),
    ],
)
def test_what_cannot_be_had_ends_it_before_anything_is_removed(offered, code, words, run):
    host = Host(offered)
    result = run(host, **PLAN)
    assert [one["code"] for one in result["findings"]] == [code]
    assert words in result["msg"]
    assert verbs(host) == ["apt-get update"]


def test_a_repair_that_lacks_headers_is_tried_again_once_they_are_there(run):
    """The first `dpkg --configure -a` and the first installation end at the broken package."""
    host = Host(**{"--configure": 1, HEADERS: 1})
    assert not run(host, **PLAN, repair=[REPAIR])["findings"]
    assert verbs(host)[:6] == [
        "dpkg",
        "apt-get update",
        "apt-mark unhold amdgpu-dkms",
        "apt-get purge amdgpu-install",
        f"apt-get install {HEADERS}",
        "dpkg",
    ]


@pytest.mark.parametrize("failing", [{"--configure": 9}, {"--configure": 9, HEADERS: 9}])
def test_what_stays_half_configured_is_named(failing, run):
    said = "Errors were encountered while processing:\n apiary-fault\n"
    result = run(Host(said=said, **failing), manager="apt", repair=[REPAIR], install=[[HEADERS]])
    (finding,) = result["findings"]
    assert (finding["code"], finding["subject"]) == ("ROCM-DPKG-BROKEN", "apiary-fault")


def test_a_build_that_fails_tells_the_end_of_its_log(run, tmp_path, monkeypatch):
    log = tmp_path / "6.16.13/build/make.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        "\n".join(f"line {number}" for number in range(40)) + "\nerror: too few arguments\n"
    )
    monkeypatch.setattr(transaction, "MAKE_LOGS", str(tmp_path))
    said = "Error! Bad return status for module build on kernel: 6.1.0-28-amd64 (x86_64)"
    result = run(Host(said=said, **{EXACT: 1}), **PLAN)
    assert [one["code"] for one in result["findings"]] == ["ROCM-DKMS-BUILD"]
    assert "too few arguments" in result["msg"]
    assert "line 10" not in result["msg"]


def test_any_other_failure_tells_what_the_package_manager_said(run):
    said = "Reading lists...\nE: Held packages were changed and -y was used without one.\n"
    result = run(Host(said=said, **{EXACT: 1}), **PLAN)
    assert [one["code"] for one in result["findings"]] == ["ROCM-PACKAGE-MANAGER"]
    assert "E: Held packages were changed" in result["msg"]


@pytest.mark.parametrize(
    "said",
    [
        "Package amdgpu-dkms-6.16.13-1.x86_64.rpm is not signed\nError: GPG check FAILED\n",
        "E: Failed to fetch file:/r/amdgpu-dkms.deb  Hash Sum mismatch\n",
    ],
)
def test_a_package_that_is_not_what_was_signed_is_told_as_that(said, run):
    result = run(Host(said=said, **{EXACT: 1}), **PLAN)
    assert [one["code"] for one in result["findings"]] == ["ROCM-REPOSITORY-SIGNATURE"]


@pytest.mark.parametrize(
    ("manager", "said", "versions"),
    [
        ("apt", "rocm | 7.2.4-1 | r\nrocm-dev | 9 | r\nrocm | 7.2.3-1 | r\n",
         ["7.2.4-1", "7.2.3-1"]),
        ("dnf", "0:7.2.4-1.el9\n1:7.2.3-1.el9\nLast metadata expiration check\n",
         ["7.2.4-1.el9", "1:7.2.3-1.el9"]),
    ],
)  # fmt: skip
def test_versions_are_read_from_what_each_package_manager_prints(manager, said, versions):
    assert MANAGERS[manager](lambda _argv: (0, said)).versions("rocm") == versions
