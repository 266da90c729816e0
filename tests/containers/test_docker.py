# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A replica as its rendered unit starts it, in a real container of Docker's, with the double.

Not real: systemd (this test reads what it would be told) and the GPUs (a simulated /sys and device
nodes that no driver serves).
"""

import dataclasses
import itertools
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import render_systemd

from support.host.containers import container_plan, exec_words, with_replica

from .conftest import ROOT, docker

USER = "daemon"
KEY = "planted-api-key"
SECONDS = 60


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def planned(image, model):
    """Return the demo's first replica, on this machine's CPUs, for this image."""
    plan = container_plan("docker", image=image)
    replica = plan.replicas[0]
    name, port = f"lab-{os.getpid()}", free_port()
    cpus = f"0-{os.cpu_count() - 1}"
    argv = list(replica.argv)
    argv[argv.index("--port") + 1] = str(port)
    plan = with_replica(
        plan,
        0,
        unit=f"apiary-{name}-0.service",
        port=port,
        cpus=cpus,
        memory_nodes=(0,),
        env={
            **{
                key: value.replace("apiary-qwen3-235b-0", f"apiary-{name}-0")
                for key, value in replica.env.items()
                # The double asks systemd for it; here /proc tells (below).
                if key != "APIARY_MEMORY_NODES"
            },
            "APIARY_CPUS": cpus,
            "APIARY_DOUBLE_STEP_SECONDS": "0.05",
        },
        argv=tuple(argv),
    )
    deployment = dataclasses.replace(plan.deployment, name=name, user=USER)
    return dataclasses.replace(plan, replicas=plan.replicas[:1], deployment=deployment)


class Host:
    """A host's files below a directory, and one replica of it as systemd would run it."""

    def __init__(self, root, plan):
        self.root, self.plan, self.replica = root, plan, plan.replicas[0]
        self.name = self.replica.unit.removesuffix(".service")
        self.told = []
        self.process = None
        files = {item.path: item for item in render_systemd(plan)}
        for item in files.values():
            path = self.at(item.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(item.content)
            path.chmod(int(item.mode, 8))
        self.unit = files[f"/etc/systemd/system/{self.replica.unit}"].content
        self._hardware()
        model = self.at(plan.deployment.model.path)
        config = ROOT / "tests/lab/models.py"
        subprocess.run(
            [sys.executable, config, self.at("/srv/models"), plan.deployment.model.name],
            check=True,
            capture_output=True,
        )
        assert (model / "config.json").exists()
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # An abstract name: paths of sockets are short.
        self.address = f"@apiary-test-{os.getpid()}-{id(self)}"
        self.manager.bind("\0" + self.address[1:])
        self.listener = threading.Thread(target=self._listen)
        self.listener.start()

    def at(self, path):
        return self.root / path.lstrip("/")

    def _listen(self):
        while message := self.manager.recv(65536):
            self.told += message.decode().splitlines()

    def _hardware(self):
        subprocess.run(
            [
                sys.executable,
                ROOT / "tests/lab/simulated_sysfs.py",
                "generate",
                self.at("/sys"),
                "--numa-nodes=1",
                f"--cpus-per-node={os.cpu_count()}",
            ],
            check=True,
        )
        self.at("/dev/dri").mkdir(parents=True)
        entries = {"/dev/kfd": self.at("/sys/class/kfd/kfd/dev")}
        for entry in self.at("/sys/class/drm").glob("renderD*"):
            entries[f"/dev/dri/{entry.name}"] = entry / "dev"
        for path, number in entries.items():
            major, minor = map(int, number.read_text().split(":"))
            os.mknod(self.at(path), stat.S_IFCHR | 0o660, os.makedev(major, minor))
            self.at(path).chmod(0o660)  # whatever the umask
            os.chown(self.at(path), 0, 4242)

    def prepare(self):
        """Run what ExecStartPre= does, on this directory; it takes a root for nobody else."""
        credentials = self.at(f"/etc/apiary/{self.plan.deployment.name}/credentials")
        credentials.mkdir(exist_ok=True)
        (credentials / "VLLM_API_KEY").write_text(KEY)
        line = next(
            line for line in self.unit.splitlines() if line.startswith("ExecStartPre=+")
        ).split()
        code = (
            "import sys; from apiary_launch import container, context;"
            "root, document, user, source, keep, empty = sys.argv[1:];"
            "one = context.read_spec(document);"
            "container.prepare(one, user, source, keep.split(), empty.split(), root)"
        )
        keep, empty = (
            " ".join(b for a, b in itertools.pairwise(line) if a == option)
            for option in ("--keep", "--empty")
        )
        document = self.at(line[line.index("--spec") + 1])
        return subprocess.run(
            [sys.executable, "-B", "-c", code, self.root, document, USER, credentials, keep, empty],
            env={
                "PYTHONPATH": str(self.at("/usr/libexec/apiary")),
            },
            capture_output=True,
            text=True,
        )

    def words(self):
        """Return ExecStart= as systemd would run it, with this directory for the host's root."""
        private = self.at(f"/run/apiary-private/{self.replica.unit}")
        line = (private / "container.env").read_text().strip()
        arguments = line.removeprefix("APIARY_ARGUMENTS=").strip('"').replace(str(self.root), "")
        words = []
        for word in exec_words(self.unit, {"APIARY_ARGUMENTS": arguments}):
            name, _equals, value = word.partition("=")
            if name == "--device":
                word = f"--device={self.at(value)}:{value}"
            elif name == "--volume":
                word = f"--volume={self.root}{value}"
            elif name == "--ulimit" and not value.startswith("core"):
                # A daemon that is itself in a container can't raise limits.
                continue
            elif value.startswith("seccomp="):
                word = f"{name}=seccomp={self.at(value.removeprefix('seccomp='))}"
            elif word == "/usr/bin/docker":
                word = shutil.which("docker")
            elif word.startswith(("/usr/libexec/apiary/container", "/run/apiary-private")):
                word = str(self.at(word))
            words.append(word)
        image = words.index(self.plan.deployment.engine.image)
        return [*words[:image], f"--volume={self.at('/sys')}:/sys:ro", *words[image:]]

    def start(self):
        done = self.prepare()
        assert done.returncode == 0, done.stderr
        self.log = self.at("/log").open("w")
        # As under the unit's CapabilityBoundingSet= and NoNewPrivileges=.
        without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        self.process = subprocess.Popen(
            [*without, *self.words()],
            env={**os.environ, "NOTIFY_SOCKET": self.address},
            stdout=self.log,
            stderr=self.log,
        )

    def wait(self, what, seconds=SECONDS):
        """Return when something holds; a replica that ends first fails the test with its log."""
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, self.at("/log").read_text()[-4000:]
            assert time.monotonic() < deadline, (self.told, self.at("/log").read_text()[-4000:])
            time.sleep(0.05)

    def ask(self, path, key=KEY, body=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.replica.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.read().decode()

    def close(self):
        docker("rm", "--force", self.name, check=False)
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.log.close()
        self.manager.shutdown(socket.SHUT_RDWR)
        self.listener.join()
        self.manager.close()


@pytest.fixture
def host(image, tmp_path):
    one = Host(tmp_path, planned(image, tmp_path))
    yield one
    one.close()


@pytest.fixture
def serving(host):
    host.start()
    host.wait(lambda: "READY=1" in host.told)
    return host


def test_a_replica_serves_alone_on_its_gpus(serving):
    inspected = docker("inspect", serving.name)
    inside = json.loads(inspected)[0]
    uid = pwd.getpwnam(USER).pw_uid
    # What it has: its own render nodes by this boot's numbers, and a user without rights.
    nodes = docker("exec", serving.name, "ls", "/dev/dri").split()
    assert len(nodes) == 4
    status = dict(
        line.split(":\t", 1)
        for line in docker("exec", serving.name, "cat", "/proc/1/status").splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split() == [str(uid)] * 4
    assert "4242" in status["Groups"].split()
    assert status["NoNewPrivs"] == "1"
    # Its policy of memory is its own to set; a namespace of its own is not to be had.
    assert status["Seccomp"] == "2"
    code = (
        "import ctypes; c = ctypes.CDLL(None); print(c.syscall(238, 0, 0, 0), c.unshare(1 << 28))"
    )
    assert docker("exec", serving.name, "python3", "-c", code).split() == ["0", "-1"]
    assert int(status["CapEff"], 16) == 0
    assert status["Cpus_allowed_list"] == serving.replica.cpus
    assert status["Mems_allowed_list"] == "0"
    assert inside["HostConfig"]["ReadonlyRootfs"] is True
    assert inside["HostConfig"]["ShmSize"] == 16 * 2**30
    assert inside["HostConfig"]["Privileged"] is False
    model = serving.plan.deployment.model.path
    refused = docker("exec", serving.name, "sh", "-c", f"touch {model}/x 2>&1 || true")
    assert "Read-only file system" in refused
    # What it tells systemd: more than one phase, and only what a container may.
    assert len([line for line in serving.told if line.startswith("STATUS=")]) > 1
    assert not any(line.startswith("MAINPID") for line in serving.told)
    # Its key is asked for, and nowhere to be read.
    assert serving.plan.deployment.model.name in serving.ask("/v1/models")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        serving.ask("/v1/models", key="another")
    commands = [
        path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.exists()
    ]
    assert not any(KEY.encode() in command for command in commands)
    assert KEY not in inspected
    assert KEY not in serving.at("/log").read_text()


def test_being_stopped_it_finishes_what_it_began(serving):
    answers = []
    body = {
        "model": serving.plan.deployment.model.name,
        "prompt": "Hello",
        "max_tokens": 40,
        "ignore_eos": True,
    }
    asking = threading.Thread(
        target=lambda: answers.append(json.loads(serving.ask("/v1/completions", body=body)))
    )
    asking.start()
    serving.wait(lambda: running(serving) == 1)
    serving.process.send_signal(signal.SIGTERM)
    assert serving.process.wait(timeout=SECONDS) == 0
    asking.join(timeout=SECONDS)
    assert [one["usage"]["completion_tokens"] for one in answers] == [40]
    assert docker("ps", "--all", "--quiet", "--filter", f"name={serving.name}") == ""


def running(host):
    line = next(
        line
        for line in host.ask("/metrics").splitlines()
        if line.startswith("vllm:num_requests_running")
    )
    return float(line.rsplit(" ", 1)[1])


def test_an_engine_that_dies_ends_the_service(serving):
    # As the out-of-memory killer would; vLLM's server then ends with status 0.
    docker("exec", serving.name, "pkill", "-9", "EngineCor")
    assert serving.process.wait(timeout=SECONDS) == 1
    assert docker("ps", "--all", "--quiet", "--filter", f"name={serving.name}") == ""


def test_a_flag_that_the_engine_lacks_is_not_tried_again(image, tmp_path):
    plan = planned(image, tmp_path)
    plan = with_replica(plan, 0, argv=(*plan.replicas[0].argv, "--no-such-flag"))
    host = Host(tmp_path, plan)
    try:
        host.start()
        assert host.process.wait(timeout=SECONDS) == 2
    finally:
        host.close()


def test_a_gpu_of_another_is_refused_inside(host):
    done = host.prepare()
    assert done.returncode == 0, done.stderr
    words = host.words()
    image = words.index(host.plan.deployment.engine.image)
    own = {word.rpartition(":")[2] for word in words if word.startswith("--device=")}
    foreign = next(
        f"/dev/dri/{path.name}"
        for path in sorted(host.at("/dev/dri").iterdir())
        if f"/dev/dri/{path.name}" not in own
    )
    words.insert(image, f"--device={host.at(foreign)}:{foreign}")
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 78
    assert "REPLICA-NOT-ISOLATED" in done.stdout + done.stderr
