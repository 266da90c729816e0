# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a simulated host is made of; two equal specifications are the same host."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from simgpu.faults import FaultError, parse_faults

from .console import error

HERE = Path(__file__).resolve().parents[1]
SECCOMP = HERE / "image" / "seccomp.json"
UNIT = "etc/systemd/system/simgpu.service"
UNIT_LINK = "etc/systemd/system/sysinit.target.wants/simgpu.service"

# Groups of the inventory, and what their hosts are called.
GPU_HOSTS, ROUTERS, MONITORING, STORAGE = "gpu_hosts", "routers", "monitoring", "storage"
KINDS = {GPU_HOSTS: "gpu", ROUTERS: "router", MONITORING: "monitor", STORAGE: "storage"}
# What each listens on, published to the machine: sshd, then replicas, or endpoints and statistics.
PORTS = {GPU_HOSTS: (22, *range(8000, 8008)), ROUTERS: (22, *range(8080, 8084), 8404)}
PORTS |= {MONITORING: (22, 9090), STORAGE: (22,)}

# systemd mounts, sets affinity and reboots; overlay and bind mounts make the simulated /sys.
CAPABILITIES = ("SYS_ADMIN", "NET_ADMIN", "SYS_NICE", "IPC_LOCK", "SYS_PTRACE", "SYS_BOOT")


@dataclass(frozen=True)
class HostSpec:
    """One host: its image, the options of its simulated hardware, its place and bind mounts."""

    name: str
    image: str
    options: tuple[str, ...]
    faults: tuple[str, ...] = ()
    mounts: tuple[tuple[Path, str], ...] = ()
    group: str = GPU_HOSTS
    address: str = ""  # in the lab's own network
    virtual_address: str | None = None  # of all routers together

    @property
    def ports(self) -> tuple[int, ...]:
        """Return the ports that are published to the machine, sshd's first."""
        return PORTS[self.group]

    @property
    def settings(self) -> str:
        """Return what simgpu-boot reads: the options of simulated_sysfs.py for this host."""
        faults = fault_options(self.faults)
        return f'SIMGPU_OPTIONS="{" ".join(self.options)}"\nSIMGPU_FAULTS="{faults}"\n'

    @property
    def volumes(self) -> list[str]:
        """Return docker's options for the bind mounts; the host cannot write to them."""
        return [f"--volume={source}:{target}:ro" for source, target in self.mounts]

    def digest(self) -> str:
        """Return a hash that changes with anything that would make another host."""
        own = [self.name, self.image, self.settings, self.address, *map(str, self.ports)]
        own += self.volumes
        hashed = hashlib.sha256("\0".join([*own, *container_options()]).encode())
        for path, content, _ in simulator_files():
            hashed.update(path.encode() + content)
        hashed.update(SECCOMP.read_bytes())
        return hashed.hexdigest()[:16]


def fault_options(faults: Iterable[str]) -> str:
    """Return faults as options of simulated_sysfs.py."""
    return " ".join(f"--fault {fault}" for fault in faults)


def container_options() -> list[str]:
    """Return docker's options that make a container a host."""
    return [
        "--stop-signal=SIGRTMIN+3",
        # A reboot inside the host ends the container; Docker then boots it again.
        "--restart=always",
        "--shm-size=8g",
        f"--security-opt=seccomp={SECCOMP}",
        "--security-opt=apparmor=unconfined",
        # Every character device: where runc leaves device rules to systemd, it drops those for
        # numbers that no driver of this machine has. No block device: a host's disks are its own.
        "--device-cgroup-rule=c *:* rwm",
        # systemd can only apply DevicePolicy= where it may write its own control groups.
        "--cgroupns=host",
        f"--volume={_control_groups()}:/sys/fs/cgroup",
        *(f"--cap-add={capability}" for capability in CAPABILITIES),
        *(f"--tmpfs={path}" for path in ("/run", "/run/lock", "/tmp")),
    ]


def _control_groups() -> Path:
    """Return the machine's unified hierarchy, which is what a GPU server's systemd uses.

    On a machine with both hierarchies it lies one level deeper, and newer releases of
    systemd refuse to boot with the other one.
    """
    hybrid = Path("/sys/fs/cgroup/unified")
    return hybrid if hybrid.is_dir() else hybrid.parent


def simulator_files() -> Iterator[tuple[str, bytes, int]]:
    """Yield path below ``/``, content and mode of what makes a bare host a simulated GPU host."""
    yield "opt/simgpu/simgpu-boot", (HERE / "image" / "simgpu-boot").read_bytes(), 0o755
    # Simulated hosts boot what GRUB's files say, and have no GRUB.
    yield "etc/default/grub", b'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n', 0o644
    yield "usr/sbin/update-grub", (HERE / "update-grub").read_bytes(), 0o755
    yield UNIT, (HERE / "image" / "simgpu.service").read_bytes(), 0o644
    for source in [HERE / "simulated_sysfs.py", *sorted((HERE / "simgpu").glob("*.py"))]:
        yield f"opt/simgpu/{source.relative_to(HERE)}", source.read_bytes(), 0o644


def archive(spec: HostSpec, host_key: Path, authorized_key: Path) -> bytes:
    """Return a tar of all that is put into a new host before its first boot."""
    host_public = host_key.with_suffix(".pub")
    files = [
        *simulator_files(),
        ("etc/default/simgpu", spec.settings.encode(), 0o644),
        ("etc/ssh/ssh_host_ed25519_key", host_key.read_bytes(), 0o600),
        ("etc/ssh/ssh_host_ed25519_key.pub", host_public.read_bytes(), 0o644),
        # sshd accepts a key file that root owns, whoever logs in.
        ("home/ansible/.ssh/authorized_keys", authorized_key.read_bytes(), 0o644),
    ]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content, mode in files:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo(UNIT_LINK)
        link.type, link.linkname = tarfile.SYMTYPE, f"/{UNIT}"
        tar.addfile(link)
    return buffer.getvalue()


def host_names(count: int, kind: str = "gpu") -> list[str]:
    """Return gpu-001, gpu-002, ..."""
    return [f"{kind}-{number:03d}" for number in range(1, count + 1)]


def faults_by_host(arguments: Sequence[str], hosts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Sort ``HOST=FAULT`` arguments by host, and refuse unknown hosts and faults."""
    chosen: dict[str, list[str]] = {host: [] for host in hosts}
    for argument in arguments:
        host, _, fault = argument.partition("=")
        if host not in chosen:
            raise error(
                "LAB-ARGUMENT",
                f"--fault {argument}",
                f"there is no host {host!r}; write HOST=FAULT, for example {hosts[0]}=missing=3",
            )
        check_faults([fault], argument)
        chosen[host].append(fault)
    return {host: tuple(faults) for host, faults in chosen.items()}


def check_faults(faults: Sequence[str], argument: str) -> None:
    """Refuse what the simulator would not take."""
    try:
        parse_faults(faults)
    except FaultError as problem:
        raise error(
            "LAB-ARGUMENT",
            f"--fault {argument}",
            str(problem),
        ) from problem


def cpus_per_node(cores: int | None, numa_nodes: int = 2) -> int:
    """Share the machine's real CPUs among the simulated nodes, so that pinning is real."""
    share = (cores or 1) // numa_nodes
    if share < 1:
        raise error(
            "LAB-CPUS",
            "this machine",
            f"{cores or 1} CPU cannot be shared by {numa_nodes} NUMA nodes"
            f"; run the lab on a machine with at least {numa_nodes} CPUs",
        )
    return share
