# SPDX-License-Identifier: GPL-3.0-or-later

"""The host's side of a replica that runs in a container.

``prepare`` resolves, as root and at every start, what changes between boots: device nodes of the
planned GPUs, their groups, the user, directories, credentials. ``docker`` stands between systemd
and the supervisor in one of Docker's containers, which does not pass on sd_notify(3).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from ....module_utils.finding import ApiaryError
from ....module_utils.kfd import read
from . import backoff, preflight
from .context import Context, LaunchSpec, read_life, read_spec, replica_error
from .gpus import present

# Transient: systemd tries again, since udev, the driver or an image may come late.
REFUSED = 75
PRIVATE = "run/apiary-private"
SHARED = "run/apiary"
CREDENTIALS = "/run/credentials"
ROOT = ROOT_GROUP = 0
# How many starts failed, root's; and what the supervisor in the container removes after a good one.
STARTS = "starts"
# What a container may tell systemd of its unit; not MAINPID or descriptors.
RELAYED = ("READY", "STATUS", "STOPPING", "RELOADING", "WATCHDOG", "EXTEND_TIMEOUT_USEC", "ERRNO")


def device_arguments(gpus: tuple[str, ...], root: str = "/") -> list[str]:
    """Return the words of `run` that give a container these GPUs and nothing of others.

    Not udev's by-path names, whose colons part the fields of --device.
    """
    host = present(gpus, root)
    paths = ["/dev/kfd", *(f"/dev/dri/{host[key].render}" for key in gpus if key in host)]
    unserved = [key for key in gpus if key not in host]
    absent = [path for path in paths if not os.path.exists(os.path.join(root, path.lstrip("/")))]
    if unserved or absent:
        raise replica_error(
            "REPLICA-NO-DEVICE", f"no device node of {', '.join([*unserved, *absent])}"
        )
    nodes = [os.stat(os.path.join(root, path.lstrip("/"))) for path in paths]
    # By number: the image's groups have other ones. Root's own group would be a right too many.
    groups = sorted({node.st_gid for node in nodes} - {ROOT_GROUP})
    return [*(f"--device={path}" for path in paths), *(f"--group-add={gid}" for gid in groups)]


def _directory(path: str, uid: int, gid: int, mode: int) -> None:
    """Make a directory of its user's; what is in it stays, but of the same user.

    Only the last part may lie where the user writes: what else than a directory he put there goes,
    and nothing follows a link of his.
    """
    if os.path.lexists(path) and not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
    os.makedirs(path, exist_ok=True)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != uid:
            _hand_over(handle, uid, gid)
        os.fchown(handle, uid, gid)
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def _remove(path: str) -> None:
    """Remove what is there, a link itself; of a directory what can be."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)  # the engine may write in it meanwhile
    elif os.path.lexists(path):
        os.unlink(path)


def _hand_over(handle: int, uid: int, gid: int) -> None:
    """Give all below a directory to its new user, as systemd does with CacheDirectory=.

    Not what is root's, and the directory itself comes last: a start that was killed goes on.
    """
    for _path, folders, files, place in os.fwalk(".", topdown=False, dir_fd=handle):
        for name in (*folders, *files):
            if os.stat(name, dir_fd=place, follow_symlinks=False).st_uid not in (uid, ROOT):
                os.chown(name, uid, gid, dir_fd=place, follow_symlinks=False)


def _credentials(spec: LaunchSpec, source: str, private: str, uid: int, gid: int) -> list[str]:
    """Copy the secrets, which only root may read, for the engine's user; in memory.

    Not by LoadCredential=: systemd before 254 has no credentials for a second ExecStartPre=.
    """
    if not spec.secrets:
        return []
    target = os.path.join(private, "credentials")
    shutil.rmtree(target, ignore_errors=True)  # the first start has none
    _directory(target, uid, gid, 0o700)
    for name in spec.secrets:
        path = os.path.join(target, name)
        try:
            with open(os.path.join(source, name), "rb") as stream:
                value = stream.read()
        except OSError as failure:
            raise replica_error(
                "REPLICA-NO-SECRET", f"no credential {name}: {failure.strerror}"
            ) from failure
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(value)
            os.fchown(descriptor, uid, gid)
    return [f"--volume={target}:{CREDENTIALS}:ro"]


def count_start(spec: LaunchSpec, root: str = "/") -> int:
    """Count this start, and return how many before it failed since the last good one or a stop.

    Here and not in the container, which an image that cannot be fetched never makes. systemd
    removes the private directory when the unit is stopped, so nobody waits who asks for a start.
    """
    private = os.path.join(root, PRIVATE, spec.unit)
    shared = os.path.join(root, SHARED, spec.unit)
    _directory(private, 0, 0, 0o700)
    os.makedirs(shared, exist_ok=True)
    count, mark = os.path.join(private, STARTS), os.path.join(shared, STARTS)
    text = read(count)
    failed = int(text) if text.isdigit() and os.path.lexists(mark) else 0
    with open(count, "w", encoding="ascii") as stream:
        stream.write(f"{failed + 1}\n")
    # Made anew and never followed: the directory is the engine's. Empty, it has the supervisor
    # in the container count nothing of its own.
    _remove(mark)
    os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    return failed


@contextlib.contextmanager
def _as_user(name: str) -> Iterator[None]:
    """Read files as this user: a file server may take root for nobody."""
    try:
        account = pwd.getpwnam(name)
    except KeyError:  # prepare refuses it
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(account.pw_gid)
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(ROOT)
        os.setegid(ROOT_GROUP)
        os.setgroups(groups)


def await_turn(spec: LaunchSpec, user: str) -> None:
    """Count this start, and pause as long as failed ones before it demand.

    Raises ApiaryError after it where the weights were not there before, as backoff.wait does.
    """
    context = Context(spec, read_life(), {})
    failed = count_start(spec)
    seconds = backoff.pause_seconds(context, failed)
    if seconds > 0:
        with _as_user(user):
            refusal = preflight.passing_refusal(context)
        print(f"waiting {seconds:.0f} s after {failed} failed starts", file=sys.stderr, flush=True)
        time.sleep(seconds)
        if refusal:
            raise refusal


def prepare(
    spec: LaunchSpec, user: str, source: str, keep: list[str], empty: list[str], root: str = "/"
) -> None:
    """Make a replica's directories and write container.env: the words that a plan can't know.

    ``source`` is the directory of the deployment's secrets.
    """
    try:
        account = pwd.getpwnam(user)
    except KeyError as failure:
        raise replica_error("CONTAINER-NO-USER", f"the host has no user {user}") from failure
    uid, gid = account.pw_uid, account.pw_gid
    words = [f"--user={uid}:{gid}", *device_arguments(spec.gpus, root)]
    private = os.path.join(root, PRIVATE, spec.unit)
    _directory(private, 0, 0, 0o700)
    _directory(os.path.join(private, "notify"), 0, 0, 0o755)
    _directory(os.path.join(root, SHARED, spec.unit), uid, gid, 0o755)
    # A link there is root's own, to a larger disk.
    caches = os.path.realpath(os.path.join(root, "var/cache", os.path.splitext(spec.unit)[0]))
    _directory(caches, uid, gid, 0o750)
    for name in empty:
        _remove(os.path.join(caches, name))
    for name in (*keep, *empty):
        _directory(os.path.join(caches, name), uid, gid, 0o750)
    words += _credentials(spec, source, private, uid, gid)
    path = os.path.join(private, "container.env")
    with open(path + ".new", "w", encoding="utf-8") as stream:
        stream.write(f'APIARY_ARGUMENTS="{" ".join(words)}"\n')
    os.replace(path + ".new", path)


def passed_on(message: bytes) -> bytes:
    """Return the assignments of a message that a container may send."""
    lines = message.decode("utf-8", "replace").splitlines()
    return "\n".join(line for line in lines if line.partition("=")[0] in RELAYED).encode()


class Relay:
    """Receives what the container's supervisor tells, and tells it systemd as this process."""

    def __init__(self, path: str, manager: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._manager = "\0" + manager[1:] if manager.startswith("@") else manager
        self._inside = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        # By the directory's descriptor: a socket's whole path has 107 bytes at most.
        directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        # The engine's user writes to it; on the host the directory above is root's alone.
        mask = os.umask(0)
        self._inside.bind(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        os.umask(mask)
        os.close(directory)
        self._outside = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._end, self._ended = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._inside in select.select([self._inside, self._ended], [], [])[0]:
            message = passed_on(self._inside.recv(65536))
            if message and self._manager:
                with contextlib.suppress(OSError):
                    self._outside.sendto(message, self._manager)

    def close(self) -> None:
        """Pass on what the container sent before it ended, and end."""
        self._end.close()
        self._thread.join()
        for end in (self._inside, self._outside, self._ended):
            end.close()


def docker(name: str, path: str, command: list[str]) -> int:
    """Run Docker's client in the foreground; return the container's exit status.

    Being told to stop is told the container's first process, not the client: one that is killed
    while it attaches would leave the container behind.
    """
    relay = Relay(path, os.environ.get("NOTIFY_SOCKET", ""))
    ended = threading.Event()
    client = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def stop(_number: int, _frame: object) -> None:
        if ended.is_set():
            return
        told = subprocess.run(
            [command[0], "kill", "--signal=TERM", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        if told.returncode != 0:
            client.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    status = client.wait()
    ended.set()
    relay.close()
    return 128 - status if status < 0 else status


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="container", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="task", required=True)
    first = commands.add_parser("prepare", help="resolve devices, make directories")
    first.add_argument("--spec", required=True, help="the launch document")
    first.add_argument("--user", required=True, help="whom the engine runs as")
    first.add_argument("--credentials", default="", help="the directory of the secrets")
    first.add_argument("--keep", action="append", default=[], help="a cache that stays")
    first.add_argument("--empty", action="append", default=[], help="a cache that begins empty")
    second = commands.add_parser("docker", help="run a container of Docker's")
    second.add_argument("--name", required=True, help="the container's")
    second.add_argument("--socket", required=True, help="where the container sends notifications")
    second.add_argument("argv", nargs=argparse.REMAINDER, help="-- docker run ...")
    arguments = parser.parse_args(argv)
    try:
        if arguments.task == "docker":
            return docker(arguments.name, arguments.socket, arguments.argv[1:])
        spec, user, source = read_spec(arguments.spec), arguments.user, arguments.credentials
        await_turn(spec, user)
        prepare(spec, user, source, arguments.keep, arguments.empty)
    except OSError as failure:
        print(f"{arguments.spec}: {failure}", file=sys.stderr)
        return REFUSED
    except ApiaryError as refusal:
        unit = os.path.basename(arguments.spec)
        for finding in refusal.findings:
            print(finding.about(unit), file=sys.stderr)
        return REFUSED
    return 0
