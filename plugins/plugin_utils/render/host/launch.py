# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start one replica on exactly the GPUs it was planned for, and tell when it answers.

Installed on hosts as /usr/libexec/apiary/launch, with a shebang: standard library, Python 3.9,
one file.
``run`` works inside the unit, under its device policy, and hands over to the engine by exec.
"""

from __future__ import annotations

import argparse
import errno
import http.client
import os
import socket
import sys
import threading
import time

REFUSED = 78  # EX_CONFIG of sysexits.h: the host is not what the plan says
AMD = "0x1002"
POLL_SECONDS = 0.5


class RefusalError(Exception):
    """A start that must not happen: code, what was found, what to do."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code, self.remedy = code, remedy


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def gpus_of_host(root: str = "/") -> dict[str, tuple[int, str]]:
    """Return {gpu key: (kfd node, render node name)} of every AMD GPU the kernel serves.

    The key is the BDF, with #partition where several KFD nodes share one (partition modes).
    Source: KFD topology ``domain``, ``location_id`` = bus<<8|dev<<3|fn, ``drm_render_minor``.
    """
    base = os.path.join(root, "sys/class/kfd/kfd/topology/nodes")
    nodes: dict[str, list[tuple[int, int, str]]] = {}
    try:
        numbers = sorted(int(name) for name in os.listdir(base) if name.isdigit())
    except OSError:
        return {}
    for number in numbers:
        properties = dict(
            line.split(None, 1)
            for line in _read(os.path.join(base, str(number), "properties")).splitlines()
            if " " in line
        )
        # A GPU that the device policy hides reads as empty: it is not this process's to see.
        if int(properties.get("simd_count", 0)) == 0 or "drm_render_minor" not in properties:
            continue
        location, domain = int(properties.get("location_id", 0)), int(properties.get("domain", 0))
        slot = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
        render = f"renderD{properties['drm_render_minor']}"
        nodes.setdefault(slot, []).append((location & 7, number, render))
    keyed: dict[str, tuple[int, str]] = {}
    for slot, shares in nodes.items():
        for function, node, render in shares:
            # Partitions of one GPU carry their id in the function bits; its own function is 0.
            key = f"{slot}.0#{function}" if len(shares) > 1 else f"{slot}.{function}"
            keyed[key] = (node, render)
    return keyed


def permitted(render: str, root: str = "/") -> bool:
    """Say whether this process may open a render node; only a refusal of rights counts as no."""
    path = os.path.join(root, "dev/dri", render)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as failure:
        if failure.errno == errno.ENOENT:
            raise RefusalError(
                "REPLICA-NO-DEVICE",
                f"{path} does not exist",
                "check that udev runs and the amdgpu driver is loaded: ls -l /dev/dri",
            ) from failure
        return failure.errno not in (errno.EPERM, errno.EACCES)
    return True


def visible_devices(wanted: list[str], root: str = "/") -> list[int]:
    """Return the HIP ordinals of the wanted GPUs, as this process will number them.

    KFD hides GPUs whose render node may not be opened, and HIP numbers what is left in KFD node
    order from 0. Raises Refusal when the device policy gives more, or fewer, than was planned.
    Source: ROCr amd_filter_device.cpp and the kernel's kfd_devcgroup_check_permission.
    """
    host = gpus_of_host(root)
    on_bus = os.path.join(root, "sys/bus/pci/devices")
    missing = [
        key
        for key in wanted
        if key not in host and not os.path.exists(os.path.join(on_bus, key.split("#")[0]))
    ]
    if missing:
        raise RefusalError(
            "REPLICA-GPU-MISSING",
            f"planned GPU {', '.join(missing)} is not there; "
            f"the host has {', '.join(sorted(host)) or 'no GPUs'}",
            "check the GPU (dmesg, lspci), then run the site playbook again to plan without it",
        )
    seen = {key for key, (_node, render) in host.items() if permitted(render, root)}
    denied = sorted(set(wanted) - seen)
    if denied:
        raise RefusalError(
            "REPLICA-GPU-DENIED",
            f"may not open the render node of planned GPU {', '.join(denied)}",
            "check the unit's DeviceAllow= lines, /dev/dri/by-path and the render group",
        )
    foreign = sorted(seen - set(wanted))
    if foreign:
        raise RefusalError(
            "REPLICA-NOT-ISOLATED",
            f"may open GPUs of others: {', '.join(foreign)}; "
            f"expected only {', '.join(sorted(wanted))}",
            "the device policy is not in effect: check DevicePolicy=closed and the device cgroup",
        )
    order = sorted(seen, key=lambda key: host[key][0])
    return [order.index(key) for key in sorted(wanted, key=order.index)]


def run(wanted: list[str], command: list[str], root: str = "/") -> None:
    """Check the promise, number the devices, become the engine; never returns."""
    ordinals = visible_devices(wanted, root)
    environment = dict(os.environ, HIP_VISIBLE_DEVICES=",".join(map(str, ordinals)))
    # Indices of ROCR and HIP compound, and vLLM refuses two that differ.
    for name in ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        environment.pop(name, None)
    try:
        os.execve(command[0], command, environment)  # noqa: S606 - the engine itself, no shell
    except OSError as failure:
        raise RefusalError(
            "REPLICA-NO-ENGINE",
            f"cannot run {command[0]}: {failure.strerror}",
            "install the engine there, or set engine.executable in the deployment",
        ) from failure


def check_port(host: str, port: int) -> None:
    """Refuse a port that somebody serves: his answers would pass for this replica's."""
    try:
        family, _type, _protocol, _name, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        socket.create_server(address[:2], family=family, backlog=1).close()
    except OSError as failure:
        raise RefusalError(
            "REPLICA-PORT-BUSY",
            f"cannot listen on {host} port {port}: {failure.strerror}",
            "see who does: ss -ltnp, and systemctl list-units 'apiary-*' for another deployment",
        ) from failure


def wait(host: str, port: int, timeout: float, main_pid: int = 0) -> None:
    """Return when /health answers 200, and give up as soon as the engine is gone.

    systemd itself would wait for this process until the start timeout. ``main_pid`` is the
    engine's, 0 where it isn't known.
    """
    deadline = time.monotonic() + timeout
    tick = threading.Event()
    last = "no answer yet"
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(host, port, timeout=5)
        try:
            connection.request("GET", "/health")
            status = connection.getresponse().status
            last = f"status {status}"
        except (http.client.HTTPException, OSError) as failure:
            status, last = 0, str(failure)
        finally:
            connection.close()
        if main_pid and not os.path.exists(f"/proc/{main_pid}"):
            raise RefusalError(
                "REPLICA-DIED",
                f"the engine (process {main_pid}) ended before it answered",
                "see its last lines in this journal",
            )
        if status == 200:
            return
        tick.wait(POLL_SECONDS)
    raise RefusalError(
        "REPLICA-NOT-READY",
        f"{host} port {port} did not answer 200 within {timeout:g} s: {last}",
        "see the engine's lines in this journal; if it was loading, raise start_timeout_seconds",
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="launch", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    starter = commands.add_parser("run", help="check the GPUs and become the engine")
    starter.add_argument("--gpu", action="append", required=True, help="BDF, with #partition")
    starter.add_argument("--host", default="127.0.0.1", help="the address it will listen on")
    starter.add_argument("--port", type=int, required=True)
    starter.add_argument("argv", nargs=argparse.REMAINDER, help="-- and the engine's command")
    waiter = commands.add_parser("wait", help="return when the replica answers")
    waiter.add_argument("--host", default="127.0.0.1")
    waiter.add_argument("--port", type=int, required=True)
    waiter.add_argument("--timeout", type=float, default=float("inf"), help="seconds")
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "wait":
            # systemd tells the commands of a unit which process is its main one.
            main_pid = int(os.environ.get("MAINPID", "0"))
            wait(arguments.host, arguments.port, arguments.timeout, main_pid)
        else:
            command = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
            if not command:
                parser.error("no engine command given")
            check_port(arguments.host, arguments.port)
            run(arguments.gpu, command)
    except RefusalError as refusal:
        print(f"error: {refusal.code}: {refusal}", file=sys.stderr)
        print(f"  remedy: {refusal.remedy}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
