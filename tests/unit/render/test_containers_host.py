# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the host does for a replica in a container, on directories and a stand-in for Docker."""

import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError, Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.containers import (
    container_files,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host import backoff, container
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.context import (
    Context,
    read_spec,
    replica_error,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.unit import (
    launch_spec,
    supervisor_files,
)

from support.host.containers import container_plan

KFD = "sys/class/kfd/kfd/topology/nodes"
# BDF: (KFD node, render minor); on real hosts their orders differ.
GPUS = {"05": (3, 129), "26": (2, 131), "46": (5, 130), "65": (4, 128), "85": (6, 132)}
ME = pwd.getpwuid(os.getuid()).pw_name
UNIT = "apiary-qwen3-235b-0.service"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A host with five GPUs, four of them the first replica's."""
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/kfd").touch()
    for bus, (node, minor) in GPUS.items():
        directory = tmp_path / KFD / str(node)
        directory.mkdir(parents=True)
        (directory / "properties").write_text(
            f"simd_count 1216\nlocation_id {int(bus, 16) << 8}\ndomain 0\n"
            f"drm_render_minor {minor}\n"
        )
        (tmp_path / f"dev/dri/renderD{minor}").touch()
    # Only root may give files away.
    if os.getuid() != 0:
        monkeypatch.setattr(container.os, "chown", lambda *_words, **_options: None)
        monkeypatch.setattr(container.os, "fchown", lambda *_words, **_options: None)
    return tmp_path


@pytest.fixture
def spec(tmp_path):
    plan = container_plan("quadlet")
    path = tmp_path / "replica-0.json"
    path.write_text(dumps(launch_spec(plan, plan.replicas[0], 0)))
    return read_spec(str(path))


def group(monkeypatch, number):
    """Have every file belong to a group."""
    real = os.stat

    class Stat:
        st_gid = number

    monkeypatch.setattr(
        container.os,
        "stat",
        lambda path, **options: Stat if "/dev/" in str(path) else real(path, **options),
    )


def test_only_the_planned_gpus_by_the_numbers_of_this_boot(root, spec, monkeypatch):
    group(monkeypatch, 109)
    assert container.device_arguments(spec.gpus, str(root)) == [
        "--device=/dev/kfd",
        "--device=/dev/dri/renderD129",
        "--device=/dev/dri/renderD131",
        "--device=/dev/dri/renderD130",
        "--device=/dev/dri/renderD128",
        "--group-add=109",
    ]


def test_nobody_is_given_the_group_of_root(root, spec, monkeypatch):
    group(monkeypatch, 0)
    assert "--group-add" not in " ".join(container.device_arguments(spec.gpus, str(root)))


@pytest.mark.parametrize("path", ["dev/kfd", "dev/dri/renderD128"])
def test_a_node_that_udev_has_not_made_is_named(root, spec, path):
    (root / path).unlink()
    with pytest.raises(ApiaryError, match=f"/{path}") as refusal:
        container.device_arguments(spec.gpus, str(root))
    assert refusal.value.findings[0].code == "REPLICA-NO-DEVICE"


def test_a_gpu_that_is_gone_is_named(root, spec):
    (root / KFD / "4/properties").unlink()
    with pytest.raises(ApiaryError, match="0000:65:00"):
        container.device_arguments(spec.gpus, str(root))


def test_what_a_start_resolves_is_written_for_systemd(root, spec, monkeypatch):
    group(monkeypatch, 109)
    credentials = root / "credentials"
    credentials.mkdir()
    (credentials / "VLLM_API_KEY").write_text("planted")
    kept = root / "var/cache/apiary-qwen3-235b-0/triton/kernel"
    gone = root / "var/cache/apiary-qwen3-235b-0/home/.aiter/module.so"
    for path in (kept, gone):
        path.parent.mkdir(parents=True)
        path.touch()
    for _start in range(2):
        container.prepare(spec, ME, str(credentials), ["triton", "vllm"], ["home"], str(root))
    private = root / "run/apiary-private" / UNIT
    text = (private / "container.env").read_text()
    me = pwd.getpwnam(ME)
    assert text.startswith(f'APIARY_ARGUMENTS="--user={me.pw_uid}:{me.pw_gid} --device=/dev/kfd ')
    assert "renderD132" not in text
    assert f"--volume={private}/credentials:/run/credentials:ro" in text
    assert "planted" not in text
    assert (private / "credentials/VLLM_API_KEY").read_text() == "planted"
    assert stat.S_IMODE((private / "credentials/VLLM_API_KEY").stat().st_mode) == 0o400
    assert stat.S_IMODE((private / "credentials").stat().st_mode) == 0o700
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert kept.exists()
    assert not gone.exists()
    assert (root / "var/cache/apiary-qwen3-235b-0/vllm").is_dir()
    assert (root / "run/apiary" / UNIT).is_dir()


PLACES = (
    f"run/apiary/{UNIT}/starts",
    "var/cache/apiary-qwen3-235b-0/home",
    "var/cache/apiary-qwen3-235b-0/triton",
    "var/cache/apiary-qwen3-235b-0/vllm/deep/in",
)
ENGINE = "nobody" if os.getuid() == 0 else ME


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("target", ["", "file", "gone"])
def test_root_follows_no_link_of_the_engine_s(root, spec, place, target):
    victim = root / "root-s-own"
    victim.mkdir(mode=0o700)
    (victim / "file").write_text("as it was")
    (victim / "file").chmod(0o640)
    planted = root / place
    planted.parent.mkdir(parents=True)
    planted.symlink_to(victim / target)
    (root / "VLLM_API_KEY").write_text("key")
    before = [path.stat() for path in (victim, victim / "file")]
    container.count_start(spec, str(root))
    container.prepare(spec, ENGINE, str(root), ["triton", "vllm"], ["home"], str(root))
    after = [path.stat() for path in (victim, victim / "file")]
    for field in ("st_mode", "st_uid", "st_gid"):
        assert [getattr(each, field) for each in after] == [
            getattr(each, field) for each in before
        ], field
    assert [path.name for path in victim.iterdir()] == ["file"]
    assert (victim / "file").read_text() == "as it was"
    assert (root / "var/cache/apiary-qwen3-235b-0/triton").is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_caches_of_an_earlier_user_become_the_new_one_s(root, spec):
    caches = root / "var/cache/apiary-qwen3-235b-0"
    (caches / "triton/kernels").mkdir(parents=True)
    (caches / "triton/kernels/one").write_text("kept")
    (caches / "triton/root-s").write_text("not the engine's")
    (caches / "vllm").symlink_to(root / "dev")
    for path in (caches, caches / "triton", caches / "triton/kernels", caches / "vllm"):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    os.chown(caches / "triton/kernels/one", 12345, 12345)
    nobody = pwd.getpwnam("nobody")
    (root / "VLLM_API_KEY").write_text("key")
    for _start in range(2):
        container.prepare(spec, "nobody", str(root), ["triton"], [], str(root))
        for path in (caches, caches / "triton", caches / "triton/kernels/one", caches / "vllm"):
            assert path.lstat().st_uid == nobody.pw_uid, path
    assert (caches / "triton/kernels/one").read_text() == "kept"
    assert (caches / "triton/root-s").stat().st_uid == 0
    assert (root / "dev").stat().st_uid == 0


def test_a_secret_that_is_not_there_is_refused(root, spec):
    with pytest.raises(ApiaryError, match="VLLM_API_KEY") as refusal:
        container.prepare(spec, ME, str(root), [], [], str(root))
    assert refusal.value.findings[0].code == "REPLICA-NO-SECRET"


def test_a_user_that_is_not_there_is_refused(root, spec):
    with pytest.raises(ApiaryError, match="no user nobody-here"):
        container.prepare(spec, "nobody-here", "", [], [], str(root))


@pytest.fixture
def paused(root, monkeypatch):
    """The pauses of `container prepare` on this host, which nobody waits for."""
    pauses = []
    for name in ("PRIVATE", "SHARED"):
        monkeypatch.setattr(container, name, str(root / getattr(container, name)))
    life = knowledge("serving/life.yml")
    life = {**life, "backoff": {**life["backoff"], "jitter": 0}}
    monkeypatch.setattr(container, "read_life", lambda: life)
    monkeypatch.setattr(container.time, "sleep", pauses.append)
    monkeypatch.setattr(container.preflight, "check_weights", lambda _context: None)
    return pauses


def start(path):
    return container.main(["prepare", "--spec", str(path), "--user", "nobody-here"])


def test_a_refusal_is_a_finding_and_tried_again(paused, tmp_path, spec, capsys):
    assert start(tmp_path / "replica-0.json") == 75
    said = capsys.readouterr().err
    assert "error: CONTAINER-NO-USER" in said
    assert "remedy:" in said


def test_starts_that_fail_pause_longer_and_longer(paused, tmp_path, spec):
    for _start in range(8):
        start(tmp_path / "replica-0.json")
    # The unit's RestartSec= of 10 s is beside them.
    assert paused == [10, 30, 70, 150, 290, 290]


def test_weights_that_are_not_mounted_yet_end_the_start_after_its_pause(
    paused, tmp_path, spec, capsys, monkeypatch
):
    """Not before: systemd tries the mount anew right before the next start, and not in between."""
    at = []

    def missing(context):
        at.append(len(paused))
        raise replica_error("REPLICA-WEIGHTS", f"{context.spec.weights} has no config.json")

    monkeypatch.setattr(container.preflight, "check_weights", missing)
    for _start in range(4):
        assert start(tmp_path / "replica-0.json") == 75
    assert (paused, at) == ([10, 30], [0, 1])
    assert "error: REPLICA-WEIGHTS" in capsys.readouterr().err
    # What is wrong for good the supervisor refuses, whose status systemd takes for that.
    damaged = ApiaryError(Finding("WEIGHTS-MANIFEST-DAMAGED", "/srv/models/x", "another hash"))

    def wrong(_context):
        raise damaged

    monkeypatch.setattr(container.preflight, "check_weights", wrong)
    start(tmp_path / "replica-0.json")
    assert "error: CONTAINER-NO-USER" in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="only root may be somebody else")
def test_weights_that_root_cannot_read_are_looked_at_as_the_engine_s_user(
    paused, tmp_path, spec, monkeypatch
):
    """A file server that takes root for nobody tells root nothing."""
    seen = []

    def squashed(_context):
        program = subprocess.run(["id", "-u"], capture_output=True, check=True, text=True)
        seen.append((os.geteuid(), os.getegid(), os.getgroups(), int(program.stdout)))
        if 0 in seen[-1]:
            raise replica_error("REPLICA-WEIGHTS", "Permission denied")

    monkeypatch.setattr(container.preflight, "check_weights", squashed)
    groups = os.getgroups()
    for _start in range(3):
        container.await_turn(spec, "nobody")
    nobody = pwd.getpwnam("nobody")
    assert seen == [(nobody.pw_uid, nobody.pw_gid, [], nobody.pw_uid)]
    assert (os.getresuid(), os.getresgid(), os.getgroups()) == ((0, 0, 0), (0, 0, 0), groups)


def test_a_good_start_and_a_stop_forget_those_that_failed(paused, tmp_path, root, spec):
    shared = root / "run/apiary" / UNIT
    for forget in (
        # The supervisor in the container.
        lambda: backoff.forget(Context(spec, {}, {"RUNTIME_DIRECTORY": str(shared)})),
        # systemd, at a stop.
        lambda: shutil.rmtree(root / "run/apiary-private" / UNIT),
    ):
        for _start in range(3):
            start(tmp_path / "replica-0.json")
        assert paused == [10]
        forget()
        paused.clear()
        start(tmp_path / "replica-0.json")
        assert paused == []
        forget()


def test_the_supervisor_in_the_container_counts_nothing_of_its_own(paused, tmp_path, root, spec):
    shared = root / "run/apiary" / UNIT
    life = knowledge("serving/life.yml")
    context = Context(spec, life, {"RUNTIME_DIRECTORY": str(shared)})
    context.pause = lambda seconds: pytest.fail(f"paused {seconds} s once more")
    for _start in range(3):
        start(tmp_path / "replica-0.json")
        backoff.wait(context, lambda _: None)


def test_the_mark_of_a_start_is_written_nowhere_else(paused, tmp_path, root, spec):
    shared = root / "run/apiary" / UNIT
    shared.mkdir(parents=True)
    (tmp_path / "precious").write_text("as it was")
    (shared / "starts").symlink_to(tmp_path / "precious")
    start(tmp_path / "replica-0.json")
    assert (tmp_path / "precious").read_text() == "as it was"
    assert not (shared / "starts").is_symlink()


@pytest.mark.parametrize("runtime", ["quadlet", "docker"])
def test_the_unit_keeps_the_count_over_automatic_starts(runtime):
    plan = container_plan(runtime)
    text = container_files(plan, plan.replicas[0], 0)[-1].content
    assert "RuntimeDirectoryPreserve=restart\n" in text
    (gone,) = [line for line in text.splitlines() if "/bin/rm" in line and "ExecStopPost" in line]
    assert gone == f"ExecStopPost=-+/bin/rm -f /run/apiary/{UNIT}/phase"


def test_a_container_tells_of_itself_only():
    message = b"READY=1\nMAINPID=1\nSTATUS=serving: all of it\nFDSTORE=1\nWATCHDOG=1"
    assert container.passed_on(message) == b"READY=1\nSTATUS=serving: all of it\nWATCHDOG=1"


def test_what_a_container_sent_before_its_end_is_passed_on(tmp_path):
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as replica,
    ):
        manager.bind(f"\0apiary-{os.getpid()}-{id(manager)}")
        manager.setblocking(False)
        relay = container.Relay(str(tmp_path / "socket"), "@" + manager.getsockname()[1:].decode())
        for message in (b"STATUS=loading", b"", b"STATUS=out of memory"):
            replica.sendto(message, str(tmp_path / "socket"))
        relay.close()
        assert [manager.recv(4096), manager.recv(4096)] == [
            b"STATUS=loading",
            b"STATUS=out of memory",
        ]


class Client:
    """A stand-in for Docker's client, and the relay before it, as a process."""

    def __init__(self, directory, run, kill="exit 0"):
        self.log = directory / "log"
        # Longer than a socket's path may be.
        self.notify = directory / ("n" * 100) / "socket"
        self.notify.parent.mkdir()
        program = directory / "docker"
        program.write_text(
            f'#!/bin/bash\necho "$@" >> {self.log}\nif [ "$1" = kill ]; then {kill}; fi\n{run}\n'
        )
        program.chmod(0o755)
        for path, _mode, text in supervisor_files():
            target = directory / Path(path).relative_to("/usr/libexec/apiary")
            target.parent.mkdir(exist_ok=True)
            target.write_text(text)
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = f"apiary-{os.getpid()}-{id(self)}"
        self.manager.bind("\0" + address)
        self.manager.settimeout(120)
        code = "import sys; from apiary_launch.container import main; sys.exit(main())"
        words = ["docker", "--name", "n", "--socket", self.notify, "--", program, "run", "image"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": directory,
                "NOTIFY_SOCKET": f"@{address}",
            },
        )

    def __enter__(self):
        return self

    def __exit__(self, *_problem):
        self.process.kill()
        self.process.wait()
        self.manager.close()


SAY = (
    f"exec {sys.executable} -c 'import os, socket, sys; os.chdir(sys.argv[1]);"
    'socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), "socket")\''
)


def test_what_the_container_tells_reaches_systemd_and_its_status_is_the_service_s(tmp_path):
    told = tmp_path / ("n" * 100)
    with Client(tmp_path, f"({SAY} {told} $'READY=1\\nMAINPID=7'); exit 78") as client:
        assert client.manager.recv(4096) == b"READY=1"
        assert client.process.wait(timeout=120) == 78


@pytest.mark.parametrize(
    ("kill", "status"), [("kill -USR1 $(cat PID)", 3), ("exit 1", 128 + signal.SIGTERM)]
)
def test_being_told_to_stop_is_told_the_container_else_the_client(tmp_path, kill, status):
    pid = tmp_path / "pid"
    run = (
        f"trap 'exit 3' USR1; echo $$ > {pid}; ({SAY} {tmp_path / ('n' * 100)} READY=1);"
        " while :; do read -rt 1 <> <(:); done"
    )
    with Client(tmp_path, run, kill.replace("PID", str(pid)) + "; exit $?") as client:
        assert client.manager.recv(4096) == b"READY=1"
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(timeout=120) == status
    assert "kill --signal=TERM n" in client.log.read_text()
