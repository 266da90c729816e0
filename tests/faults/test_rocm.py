# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be wrong with repositories, keys, packages and kernels, each on a real host's apt.

Every fault ends in one finding; those that are found before the work begins leave the host as it
was, byte by byte.
"""

from __future__ import annotations

import json
import re
import shlex

import pytest

from support.host.facts import ROOT, Rocm

REPOSITORY = ROOT / ".lab/repository"
MIRROR = "/opt/lab-repository/mirror"
FAULTY = "/opt/lab-repository/faulty"
HEADERS = "linux-headers-6.1.0-28-amd64"
AMD_KEY = "CA8BB4727A47B4D09B4EE8969386B48A1A693C5C"

STATE = """
find /etc/apt /etc/udev/rules.d -type f -exec sha256sum {} + | sort -k 2
dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'
apt-mark showhold
"""
# Undo by other means than the role's own.
RESET = f"""
systemctl stop apiary-fault-0.service 2> /dev/null
rm -rf {FAULTY} /usr/src/{HEADERS}/Broken /boot/vmlinuz-6.99.0-1-amd64 /lib/modules/6.99.0-1-amd64
rm -f /etc/apt/sources.list.d/*amdgpu* /etc/apt/sources.list.d/rocm* /etc/apt/sources.list.d/other*
rm -f /etc/apt/preferences.d/*rocm* /etc/apt/keyrings/amd*
apt-mark unhold $(apt-mark showhold) > /dev/null
installed() {{ dpkg-query -W -f '${{Package}}\\n' "$@" 2> /dev/null; }}
dpkg --purge --force-all $(installed apiary-fault 'amdgpu-dkms*' 'linux-headers-*' dkms \\
  rocm-core rocminfo amd-smi-lib rocm-smi-lib) > /dev/null 2>&1
dpkg --configure -a > /dev/null
rm -rf /var/lib/dkms
true
"""

HALF_CONFIGURED = """
set -e
tree=$(mktemp -d)
mkdir "$tree/DEBIAN"
chmod 755 "$tree"
cat > "$tree/DEBIAN/control" << EOF
Package: apiary-fault
Version: 1
Architecture: all
Maintainer: Apiary lab <lab@example.invalid>
Description: does not configure
EOF
printf '#!/bin/sh\\nexit 1\\n' > "$tree/DEBIAN/postinst"
chmod 755 "$tree/DEBIAN/postinst"
dpkg-deb -b "$tree" /tmp/apiary-fault.deb > /dev/null
! dpkg -i /tmp/apiary-fault.deb > /dev/null 2>&1
"""


@pytest.fixture(scope="module")
def machine(host):
    rocm = Rocm(host.directory.name, "")
    code, said = rocm.play("tests/lab/repository/install.yml", lab_repository=str(REPOSITORY))
    assert code == 0, said
    rocm.fingerprint = json.loads((REPOSITORY / "facts.json").read_text())["fingerprint"]
    serve = f"python3 -m http.server --bind 127.0.0.1 --directory {MIRROR} 8099"
    rocm.shell(f"systemctl is-active -q lab-mirror || systemd-run -q --unit=lab-mirror {serve}")
    return rocm


@pytest.fixture
def rocm(machine):
    machine.shell(RESET)
    return machine


TAMPERED = f"""
mkdir -p {FAULTY} && cp -r {MIRROR}/amdgpu {FAULTY}/
cd {FAULTY}/amdgpu/30.30.4/ubuntu/dists/jammy
"""
DRIVER = {"rocm_driver_repository_url": f"file://{FAULTY}/amdgpu"}

REFUSED = {
    "bad signature": (
        TAMPERED + "sed -i 's/^Origin: .*/Origin: somebody/' InRelease Release",
        DRIVER,
        "ROCM-REPOSITORY-SIGNATURE",
        "faulty/amdgpu/30.30.4/ubuntu",
    ),
    "no signature": (
        TAMPERED + "rm InRelease Release.gpg",
        DRIVER,
        "ROCM-REPOSITORY-SIGNATURE",
        "faulty/amdgpu/30.30.4/ubuntu",
    ),
    "packages other than signed": (
        TAMPERED + "echo >> main/binary-amd64/Packages; gzip -kf main/binary-amd64/Packages",
        DRIVER,
        "ROCM-REPOSITORY-SIGNATURE",
        "faulty/amdgpu/30.30.4/ubuntu",
    ),
    "wrong fingerprint": (
        "",
        {"rocm_driver_key_fingerprint": AMD_KEY},
        "ROCM-KEY-FINGERPRINT",
        f"expected {AMD_KEY}",
    ),
    "no key": (
        "",
        {"rocm_driver_key_url": "http://127.0.0.1:8099/nowhere.key"},
        "ROCM-KEY-UNREADABLE",
        "nowhere.key",
    ),
    "missing version": (
        f"mkdir -p {FAULTY}/amdgpu && cp -r {MIRROR}/amdgpu/30.20.1 {FAULTY}/amdgpu/30.30.4",
        DRIVER,
        "ROCM-PACKAGE-VERSION",
        "found 1:6.16.6.30200100-2255209.22.04, expected 1:6.16.13.30300400-*",
    ),
    "repository 404": (
        "",
        {"rocm_driver_repository_url": "http://127.0.0.1:8099/moved"},
        "ROCM-REPOSITORY-MISSING",
        "http://127.0.0.1:8099/moved/30.30.4/ubuntu",
    ),
    "repository unreachable": (
        "",
        {"rocm_repository_url": "http://127.0.0.1:9/rocm"},
        "ROCM-REPOSITORY-UNREACHABLE",
        "http://127.0.0.1:9/rocm/apt/7.2.4",
    ),
    "another file names the repository": (
        f"echo 'deb [trusted=yes] file://{MIRROR}/amdgpu/30.30.4/ubuntu jammy main' "
        "> /etc/apt/sources.list.d/other.list",
        {},
        "ROCM-REPOSITORY-CONFLICT",
        "the earlier files are in place again",
    ),
    "replicas serve": (
        "systemd-run -q --unit=apiary-fault-0.service sleep infinity",
        {},
        "ROCM-SERVING",
        "apiary-fault-0.service",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_fault_is_one_finding_and_the_host_stays_as_it_was(name, rocm):
    script, variables, code, words = REFUSED[name]
    rocm.shell(script or "true")
    before = rocm.shell(STATE)
    found, said = rocm.finding(**variables)
    assert found == code
    assert words in said
    assert rocm.shell(STATE) == before


def test_the_next_kernel_without_headers_is_named_before_a_package_is_touched(rocm):
    rocm.shell("touch /boot/vmlinuz-6.99.0-1-amd64; mkdir -p /lib/modules/6.99.0-1-amd64")
    packages = rocm.shell("dpkg-query -W")
    found, said = rocm.finding()
    assert (found, said.split(":")[0]) == (
        "ROCM-PACKAGE-MISSING",
        "linux-headers-6.99.0-1-amd64",
    )
    assert rocm.shell("dpkg-query -W") == packages


def test_a_build_that_fails_shows_its_log_and_is_repaired_once_it_can_be(rocm):
    word = "error: too few arguments to function 'pci_resize_resource'"
    rocm.shell(f"apt-get -qq -y install {HEADERS} > /dev/null")
    rocm.shell(f"echo {shlex.quote(word)} > /usr/src/{HEADERS}/Broken")
    code, said = rocm.play("tests/faults/rocm.yml")
    assert code != 0
    assert set(re.findall(r"error: (ROCM-[A-Z-]+)", said)) == {"ROCM-DKMS-BUILD"}
    assert word in said
    assert "iF" in rocm.shell("dpkg-query -W -f '${db:Status-Abbrev}' amdgpu-dkms")
    # The kernel was mended: the next run finishes what dpkg left.
    rocm.shell(f"rm /usr/src/{HEADERS}/Broken")
    rocm.converge()
    assert rocm.shell("dpkg --audit") == ""
    assert rocm.shell("dkms status").count("installed") == 2


def test_a_package_that_stays_half_configured_is_told(rocm):
    rocm.shell(HALF_CONFIGURED)
    code, said = rocm.play("tests/faults/rocm.yml")
    assert code != 0
    assert set(re.findall(r"error: (ROCM-[A-Z-]+)", said)) == {"ROCM-DPKG-BROKEN"}


def test_packages_on_hold_are_changed_all_the_same_and_the_driver_held_again(rocm):
    rocm.converge(rocm_version="7.1.1")
    rocm.shell(f"apt-mark hold {HEADERS} rocm-core")
    rocm.converge()
    said = rocm.shell("dpkg-query -W -f '${Version}' amdgpu-dkms; apt-mark showhold")
    assert said.startswith("1:6.16.13.30300400-")
    assert "amdgpu-dkms" in said


def test_check_mode_says_all_of_it_and_leaves_the_host_as_it_was(rocm):
    before = rocm.shell(STATE)
    code, said = rocm.play("tests/faults/rocm.yml", "--check", "--diff")
    assert code == 0, said
    assert rocm.shell(STATE) == before
