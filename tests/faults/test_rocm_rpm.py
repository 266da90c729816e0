# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rpm half of the role's modules, on the dnf that Debian has a package of."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from support.host.facts import LAB, ROOT, Rocm

REPOSITORY = ROOT / ".lab/repository-rpm"
PLAYBOOK = "tests/faults/rocm_rpm.yml"
pytestmark = pytest.mark.night
# Debian keeps the database in the home directory; Enterprise Linux has one for all.
INSTALL = """
set -e
export DEBIAN_FRONTEND=noninteractive
command -v dnf > /dev/null || { apt-get -qq update
  apt-get -qq -y install --no-install-recommends dnf rpm > /dev/null; }
mkdir -p /etc/rpm /etc/yum.repos.d
echo '%_dbpath /var/lib/rpm' > /etc/rpm/macros
rpm --initdb
"""
RESET = """
rpm -e --noscripts amdgpu-dkms amdgpu-dkms-firmware > /dev/null 2>&1
rm -rf /etc/yum.repos.d/* /etc/pki/rpm-gpg/* /opt/lab-rpm/bad
printf '[epel]\\nname=epel\\nbaseurl=file:///opt/lab-rpm/el9\\ngpgcheck=0\\n' \\
  > /etc/yum.repos.d/epel.repo
true
"""


@pytest.fixture(scope="module")
def machine(host):
    build = [sys.executable, LAB / "repository/build.py", REPOSITORY, "--rpm"]
    subprocess.run(build, check=True, capture_output=True)
    known = json.loads((REPOSITORY / "facts.json").read_text())
    rocm = Rocm(host.directory.name, known["fingerprint"])
    rocm.shell(INSTALL + "rm -rf /opt/lab-rpm; mkdir /opt/lab-rpm")
    pack = ["tar", "-C", REPOSITORY, "-cf", "-", "."]
    reach = [sys.executable, LAB / "lab.py", "ssh", "--name", rocm.name, "gpu-001"]
    tree = subprocess.run(pack, check=True, capture_output=True).stdout
    unpack = "sudo tar -C /opt/lab-rpm --no-same-owner -xf -"
    subprocess.run([*reach, unpack], input=tree, check=True, capture_output=True)
    return rocm


@pytest.fixture
def rocm(machine):
    machine.shell(RESET)
    return machine


def codes(said):
    return set(re.findall(r"error: (ROCM-[A-Z-]+)", said))


def test_the_driver_is_installed_and_a_second_run_brings_nothing(rocm):
    code, said = rocm.play(PLAYBOOK)
    assert code == 0, said
    assert "6.16.13.30300400" in rocm.shell("rpm -q amdgpu-dkms amdgpu-dkms-firmware")
    code, said = rocm.play(PLAYBOOK, install=False)
    assert "changed=0" in said


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"release": "30.30.3"}, "ROCM-REPOSITORY-MISSING"),
        ({"version": "9.9-*"}, "ROCM-PACKAGE-VERSION"),
        ({"lab_fingerprint": "0" * 40}, "ROCM-KEY-FINGERPRINT"),
    ],
    ids=["404", "version", "fingerprint"],
)
def test_what_is_wrong_is_one_finding_and_nothing_is_written(wrong, code, rocm):
    _code, said = rocm.play(PLAYBOOK, **wrong)
    assert codes(said) == {code}
    assert rocm.shell("find /etc/yum.repos.d /etc/pki -name '*amdgpu*'") == ""


def test_dnf_refuses_a_package_that_is_not_what_was_signed(rocm):
    """AMD's repositories for Enterprise Linux have signed packages and unsigned metadata."""
    rocm.shell(
        "cp -r /opt/lab-rpm/mirror /opt/lab-rpm/bad; cd /opt/lab-rpm/bad/amdgpu/30.30.4/el/9.6; "
        "printf xxxxxxxx"
        " | dd of=$(ls main/*/amdgpu-dkms-6*.rpm) bs=1 seek=400 conv=notrunc 2> /dev/null"
    )
    _code, said = rocm.play(PLAYBOOK, mirror="file:///opt/lab-rpm/bad")
    assert codes(said) & {"ROCM-REPOSITORY-SIGNATURE", "ROCM-PACKAGE-MANAGER"}
    assert "not installed" in rocm.shell("rpm -q amdgpu-dkms || true")
