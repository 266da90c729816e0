# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What evidence says of a host's system."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.host import facts


def host(release="", virtualization="none"):
    said = CommandOutput(("systemd-detect-virt",), 0, f"{virtualization}\n", "", 0.1)
    files = {"/etc/os-release": release}
    return Evidence("gpu-001", "2026-11-21T00:00:00Z", "3", {"virtualization": said}, files)


def test_a_release_is_read():
    text = 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n# a comment\n'
    release = facts.os_release(host(text))
    assert (release.id, release.version, release.major) == ("ubuntu", "24.04", "24")


@pytest.mark.parametrize("name", ["Bob's Linux", '"half', "''", "a\\"])
def test_wrong_quotes_are_no_error(name):
    assert facts.os_release(host(f"ID=debian\nPRETTY_NAME={name}\n")).id == "debian"


@pytest.mark.parametrize("text", ["", "NAME=x\n", "no pairs"])
def test_a_host_that_does_not_tell_is_one_finding(text):
    with pytest.raises(ApiaryError) as refusal:
        facts.os_release(host(text))
    assert refusal.value.findings[0].code == "HOST-NO-RELEASE"


@pytest.mark.parametrize(
    ("kind", "guest"), [("none", False), ("docker", False), ("kvm", True), ("microsoft", True)]
)
def test_a_virtual_machine_is_a_guest_and_a_container_is_none(kind, guest):
    assert facts.is_guest(host("ID=debian\n", kind)) is guest
