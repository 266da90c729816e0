# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Equal hosts are reused and different ones are not; what the lab is asked for is checked."""

from __future__ import annotations

import dataclasses
import io
import tarfile
from pathlib import Path

import pytest

from labkit import image
from labkit.apt_sources import Mirror
from labkit.console import ApiaryError
from labkit.spec import HostSpec, archive, cpus_per_node, faults_by_host, host_names

HOST = HostSpec("gpu-001", "image:1", ("--cpus-per-node 1",), ("missing=3",))
MIRROR = Mirror("debian", "bookworm", "http://mirror.example/debian", ("main",), "/k.gpg")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "gpu-002"},
        {"image": "image:2"},
        {"options": ("--cpus-per-node 2",)},
        {"faults": ()},
        {"mounts": ((Path("/engines"), "/opt/vllm"),)},
        {"group": "routers"},
        {"address": "10.222.0.11"},
    ],
)
def test_any_difference_makes_another_host(change: dict[str, object]) -> None:
    other = dataclasses.replace(HOST, **change)  # type: ignore[arg-type]  # one field
    assert other.digest() != HOST.digest()


def test_the_same_specification_is_the_same_host() -> None:
    assert dataclasses.replace(HOST).digest() == HOST.digest()


def test_a_change_of_the_simulator_makes_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    before = HOST.digest()
    monkeypatch.setattr("labkit.spec.simulator_files", lambda: iter([("a", b"new", 0o644)]))
    assert HOST.digest() != before


def test_a_new_host_gets_its_keys_and_its_hardware(tmp_path: Path) -> None:
    for name in ("host", "host.pub", "user.pub"):
        (tmp_path / name).write_text(name)
    with tarfile.open(
        fileobj=io.BytesIO(archive(HOST, tmp_path / "host", tmp_path / "user.pub"))
    ) as tar:
        modes = {member.name: member.mode for member in tar}
        options = tar.extractfile("etc/default/simgpu")
        assert options is not None
        assert options.read() == (
            b'SIMGPU_OPTIONS="--cpus-per-node 1"\nSIMGPU_FAULTS="--fault missing=3"\n'
        )
    assert modes["etc/ssh/ssh_host_ed25519_key"] == 0o600
    assert modes["opt/simgpu/simgpu-boot"] == 0o755
    assert "opt/simgpu/simgpu/kfd.py" in modes
    assert "etc/systemd/system/sysinit.target.wants/simgpu.service" in modes


def test_faults_go_to_their_hosts() -> None:
    found = faults_by_host(["gpu-002=missing=3", "gpu-002=pcie=0:1"], host_names(2))
    assert found == {"gpu-001": (), "gpu-002": ("missing=3", "pcie=0:1")}


@pytest.mark.parametrize("argument", ["gpu-003=missing=3", "missing=3", "gpu-001=", "gpu-001=x=1"])
def test_a_fault_of_no_host_or_kind_is_refused(argument: str) -> None:
    with pytest.raises(ApiaryError, match="LAB-ARGUMENT"):
        faults_by_host([argument], host_names(2))


@pytest.mark.parametrize(("cores", "share"), [(2, 1), (3, 1), (8, 4), (192, 96)])
def test_each_node_gets_half_of_the_cpus(cores: int, share: int) -> None:
    assert cpus_per_node(cores) == share


@pytest.mark.parametrize("cores", [1, None])
def test_one_cpu_is_not_enough(cores: int | None) -> None:
    with pytest.raises(ApiaryError, match="LAB-CPUS"):
        cpus_per_node(cores)


def test_another_release_or_package_makes_another_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = image.image_tag(MIRROR)
    assert image.image_tag(dataclasses.replace(MIRROR, suite="trixie")) != first
    assert image.image_tag(dataclasses.replace(MIRROR, uri="http://other.example")) == first
    packages = tmp_path / "packages.txt"
    packages.write_text("# none but\nsystemd\n")
    monkeypatch.setattr(image, "PACKAGES", packages)
    assert image.image_tag(MIRROR) != first


def test_debootstrap_uses_the_machines_mirror_and_key() -> None:
    command = image.debootstrap_command(MIRROR, Path("/tree"))
    assert command[-3:] == ["bookworm", "/tree", "http://mirror.example/debian"]
    assert "--keyring=/k.gpg" in command
    include = next(word for word in command if word.startswith("--include="))
    assert {"systemd", "openssh-server", "rocm-smi", "haproxy"} <= set(include[10:].split(","))
