# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the supervisor makes of trouble, on hosts with real systemd.

Tests change a unit by a drop-in below /run that is gone at their end. All serve when all are done.
"""

import contextlib
import json
import re
import shlex
import threading
import time
import urllib.error
import urllib.request

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache.mounts import (
    units_of,
)

from support.waiting import await_true

QUICK = "RestartSec=500ms"

# The supervisor as it is, with facts that a test can wait for.
LAUNCHER = "/usr/local/lib/apiary-test"
HASTY = """
import json, sys
path = sys.argv[1]
life = json.load(open(path))
life["watchdog"].update(poll_seconds=1, answer_seconds=10)
life["core"].update(grace_seconds=0.3)
life["backoff"].update(first_seconds=1, most_seconds=2)
json.dump(life, open(path, "w"))
"""


class Unit:
    """The first or another replica's unit of a host."""

    def __init__(self, host, variables, plan, index=0):
        self.host, self.variables, self.plan = host, variables, plan
        self.replica = plan["replicas"][index]
        self.name = self.replica["unit"]
        self.model = plan["deployment"]["model"]["name"]
        self.spec = json.loads(
            host.file(
                f"/etc/apiary/{plan['deployment']['name']}/replica-{index}.json"
            ).content_string
        )
        self.since = "@0"

    def systemctl(self, *words):
        return self.host.run(f"systemctl {shlex.join([*words, self.name])}")

    def show(self, *properties):
        out = self.host.check_output(f"systemctl show -p {','.join(properties)} {self.name}")
        return dict(line.split("=", 1) for line in out.splitlines())

    def journal(self):
        command = f"journalctl --sync; journalctl -o cat --since {self.since} -u {self.name}"
        return self.host.check_output(command)

    def process(self, name):
        """The number of the unit's first process of that name (15 characters of it)."""
        listed = self.host.run(
            f"grep -sl {self.name} /proc/[0-9]*/cgroup | sed s/cgroup/comm/ | xargs grep -s ."
        ).stdout
        found = re.search(rf"^/proc/(\d+)/comm:{re.escape(name)}", listed, re.M)
        assert found, listed
        return int(found[1])

    @contextlib.contextmanager
    def changed(self, *lines, words=(), **fields):
        """Another spec, further words of the engine's command, and lines of [Service]."""
        spec, folder = f"/run/{self.name}.json", f"/run/systemd/system/{self.name}.d"
        start = re.search(
            r"^ExecStart=(.*)$", self.host.check_output(f"systemctl cat {self.name}"), re.M
        )[1]
        start = re.sub(r"^\S+ run --spec \S+", f"{LAUNCHER}/launch run --spec {spec}", start)
        drop_in = "\n".join(
            ["[Service]", *lines, "ExecStart=", f"ExecStart={' '.join([start, *words])}", ""]
        )
        self.write(spec, json.dumps({**self.spec, **fields}))
        self.host.check_output(f"mkdir -p {folder}")
        self.write(f"{folder}/test.conf", drop_in)
        self.host.check_output("systemctl daemon-reload")
        self.since = f"@{self.host.check_output('date +%s')}"
        try:
            yield
        finally:
            self.systemctl("stop")
            self.systemctl("reset-failed")
            self.host.run(f"rm -r {folder} {spec}; systemctl daemon-reload")

    def write(self, path, text):
        self.host.check_output(f"printf %s {shlex.quote(text)} > {path}")

    def ask(self, tokens, timeout=60):
        """The status of a completion of so many tokens; 0 when the connection broke."""
        port = self.variables["lab_ports"][str(self.replica["port"])]
        # Each word of the prompt is a token of the double's answer.
        body = {"model": self.model, "prompt": "word " * tokens, "max_tokens": tokens}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/completions",
            json.dumps({**body, "ignore_eos": True}).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                response.read()
                return response.status
        except urllib.error.HTTPError as failure:
            failure.close()
            return failure.code
        except OSError:
            return 0

    def restarted(self, since, seconds=300):
        """Wait until the unit was restarted once more than that, and serves."""

        def back():
            now = self.show("NRestarts", "ActiveState")
            return int(now["NRestarts"]) > since and now["ActiveState"] == "active"

        await_true(back, seconds)


@pytest.fixture(scope="module", autouse=True)
def restored(host, plan):
    """A supervisor in haste beside the installed one; at the end every replica serves again."""
    host.check_output(
        f"mkdir -p {LAUNCHER} && cp -r /usr/libexec/apiary/launch /usr/libexec/apiary/apiary_launch"
        f" {LAUNCHER} && python3 -c {shlex.quote(HASTY)} {LAUNCHER}/apiary_launch/life.json"
    )
    yield
    host.run(f"rm -r {LAUNCHER}")
    assert host.run(f"systemctl start {' '.join(one['unit'] for one in plan['replicas'])}").rc == 0


@pytest.fixture
def unit(host, variables, plan):
    return Unit(host, variables, plan)


def test_start_returns_when_the_model_answers(unit):
    assert unit.systemctl("restart").rc == 0
    assert unit.ask(1) == 200
    # A measured KV cache that is not the planned one, as on a CPU, is shown till the next poll.
    await_true(lambda: unit.show("StatusText")["StatusText"].startswith("serving"))


def test_an_engine_core_that_is_killed_comes_back(unit):
    """The API server outlives it for seconds and then exits with status 0."""
    with unit.changed(QUICK):
        unit.systemctl("restart")
        unit.host.check_output(f"kill -KILL {unit.process('VLLM::EngineCor')}")
        unit.restarted(0)
        assert "REPLICA-ENGINE-DIED" in unit.journal()


@pytest.mark.double
def test_a_worker_that_is_killed_takes_its_engine_along(unit):
    with unit.changed(QUICK):
        unit.systemctl("restart")
        unit.host.check_output(f"kill -KILL {unit.process('VLLM::Worker')}")
        unit.restarted(0)
        assert unit.ask(1) == 200


@pytest.mark.double
def test_an_engine_core_that_hangs_is_restarted(unit):
    with unit.changed(QUICK, "Environment=APIARY_DOUBLE_STEP_SECONDS=0.2", hang_seconds=3):
        unit.systemctl("restart")
        core = unit.process("VLLM::EngineCor")
        asking = threading.Thread(target=unit.ask, args=(500,))
        asking.start()
        await_true(lambda: "serving 1" in unit.show("StatusText")["StatusText"])
        unit.host.check_output(f"kill -STOP {core}")
        unit.restarted(0)
        asking.join()
        assert re.search(r"REPLICA-HUNG: .*1 requests and not one token", unit.journal())
        assert unit.host.run(f"kill -0 {core}").rc != 0


@pytest.mark.double
def test_a_stop_while_the_engine_starts_is_quick(unit):
    deaf = (
        "Environment=APIARY_DOUBLE_FAITHFUL_HANG=1",
        "Environment=APIARY_DOUBLE_PHASE_SECONDS=60",
    )
    with unit.changed(*deaf):
        unit.systemctl("stop")
        unit.systemctl("start", "--no-block")
        await_true(lambda: "starting workers" in unit.show("StatusText")["StatusText"])
        began = time.monotonic()
        assert unit.systemctl("stop").rc == 0
        # The engine's own ten minutes, with all that a busy machine may add to our 5 s.
        assert time.monotonic() - began < 60
        assert unit.show("Result", "ActiveState") == {
            "Result": "success",
            "ActiveState": "inactive",
        }


@pytest.mark.double
def test_requests_in_flight_end_before_a_stop_does(unit):
    with unit.changed("Environment=APIARY_DOUBLE_STEP_SECONDS=0.2"):
        unit.systemctl("restart")
        statuses = []
        asking = threading.Thread(target=lambda: statuses.append(unit.ask(30)))
        asking.start()
        await_true(lambda: "serving 1" in unit.show("StatusText")["StatusText"])
        assert unit.systemctl("stop").rc == 0
        asking.join()
        assert statuses == [200]
        assert unit.show("Result") == {"Result": "success"}


@pytest.mark.double
def test_a_word_that_the_engine_does_not_know_stays_down(unit):
    with unit.changed(QUICK, words=["--no-such-flag"]):
        assert unit.systemctl("restart").rc != 0
        found = unit.show("ExecMainStatus", "NRestarts", "ActiveState")
        assert found == {"ExecMainStatus": "2", "NRestarts": "0", "ActiveState": "failed"}
        assert "REPLICA-ENGINE-ARGUMENTS" in unit.journal()


@pytest.mark.double
@pytest.mark.parametrize(
    ("lines", "fields", "code"),
    [
        ([], {"gpus": ["0000:ff:00.0"]}, "REPLICA-GPU-MISSING"),
        (["CPUAffinity=0 1"], {}, "REPLICA-BINDING"),
        (["DevicePolicy=auto", "DeviceAllow="], {}, "REPLICA-NOT-ISOLATED"),
        ([], {"secrets": ["NOT_GIVEN"]}, "REPLICA-NO-SECRET"),
    ],
    ids=["gpu", "cpus", "devices", "secret"],
)
def test_what_cannot_heal_stays_down(unit, lines, fields, code):
    with unit.changed(QUICK, *lines, **fields):
        assert unit.systemctl("restart").rc != 0
        found = unit.show("ExecMainStatus", "NRestarts", "ActiveState")
        assert found == {"ExecMainStatus": "78", "NRestarts": "0", "ActiveState": "failed"}
        assert f"error: {code}: {unit.name}: " in unit.journal()
        assert code in unit.host.check_output(
            f"journalctl -p err -o cat --since {unit.since} -u {unit.name}"
        )


@pytest.mark.double
def test_missing_weights_are_tried_again(unit):
    with unit.changed(QUICK, weights="/srv/models/nobody/nothing"):
        assert unit.systemctl("restart").rc != 0
        # Twice, by systemd's own words: between two starts its properties are those of neither.
        await_true(lambda: unit.journal().count("status=75") > 1)
        assert re.search(r"error: (REPLICA-WEIGHTS|WEIGHTS-ABSENT): ", unit.journal())


# As mount.nfs does it: what it takes for permanent ends it at once (here: a name that does not
# resolve). The simulated hosts' kernel has no NFS, so that the mount itself is of a directory.
MOUNT_HELPER = """#!/bin/sh
[ -e /run/late-server ] && exec mount --bind /srv/late-source "$2"
echo "mount.late: Failed to resolve server late: Name or service not known" >&2
exit 32
"""
LATE = "[Mount]\nWhat=late:/export\nWhere=/srv/late\nType=late\n[Unit]\nStartLimitIntervalSec=0\n"


@pytest.fixture
def late_mount(host, unit):
    """A mount unit whose server is not there yet, of a directory with the model."""
    model = unit.plan["deployment"]["model"]["path"]
    unit.write("/sbin/mount.late", MOUNT_HELPER)
    unit.write("/run/systemd/system/srv-late.mount", LATE)
    host.check_output(
        f"chmod 755 /sbin/mount.late && mkdir -p -m 755 /srv/late-source && mkdir -p -m 0 /srv/late"
        f" && cp -r {model}/. /srv/late-source && systemctl daemon-reload"
    )
    yield "/srv/late"
    host.run(
        "systemctl stop srv-late.mount; rm -rf /srv/late-source /srv/late /sbin/mount.late"
        " /run/late-server /run/systemd/system/srv-late.mount; systemctl daemon-reload"
    )


@pytest.mark.double
def test_a_mount_that_failed_for_good_comes_and_its_replica_with_it(unit, late_mount):
    units = " ".join(units_of(late_mount))
    lines = [QUICK, "[Unit]", f"Wants={units}", f"After={units}", f"PartOf={units}", "[Service]"]
    with unit.changed(*lines, weights=late_mount):
        unit.systemctl("stop")
        # As a boot starts it, which waits for nobody.
        unit.host.check_output(f"systemctl start --no-block {unit.name}")
        await_true(lambda: unit.journal().count("status=75") > 2)
        state = "systemctl show -p Result --value srv-late.mount"
        # While it is tried again the result is a success.
        await_true(lambda: unit.host.check_output(state) == "exit-code")
        assert unit.show("ActiveState")["ActiveState"] == "activating"
        unit.host.check_output("touch /run/late-server")
        unit.restarted(2)
        # Who stops the mount stops its replica first, and can unmount.
        assert unit.host.run("systemctl stop srv-late.mount").rc == 0
        assert unit.show("ActiveState")["ActiveState"] == "inactive"
        assert unit.host.run("mountpoint -q /srv/late").rc != 0


@pytest.mark.double
def test_a_taken_port_is_tried_again_until_it_is_free(unit):
    with unit.changed(QUICK):
        unit.systemctl("stop")
        taker = "systemd-run --collect --unit=apiary-test-port python3 -m http.server"
        unit.host.check_output(f"{taker} {unit.replica['port']}")
        try:
            asked = f"curl -s -o /dev/null http://127.0.0.1:{unit.replica['port']}/"
            await_true(lambda: unit.host.run(asked).rc == 0)
            assert unit.systemctl("start").rc != 0
            assert "REPLICA-PORT-BUSY" in unit.journal()
        finally:
            unit.host.check_output("systemctl stop apiary-test-port")
        unit.restarted(0)


@pytest.mark.double
def test_stale_locks_go_and_modules_stay(unit, account):
    cache = f"/var/cache/{unit.name.removesuffix('.service')}/home/.aiter/jit/build"
    locks = [f"{cache}/lock_module_rmsnorm", f"{cache}/module_norm/lock"]
    stays = [f"{cache}/module_gemm_blockscale.so", "/var/cache/lock"]
    unit.systemctl("stop")
    unit.host.check_output(
        f"mkdir -p {cache}/module_norm && touch {' '.join(locks + stays)}"
        f" && chown -R {account} {cache}"
    )
    try:
        assert unit.systemctl("start").rc == 0
        assert [unit.host.file(path).exists for path in locks + stays] == [False, False, True, True]
    finally:
        unit.host.run(f"rm -r {' '.join(stays)}")


@pytest.mark.double
def test_the_second_replica_waits_until_the_first_has_read(host, variables, plan):
    first, second = (Unit(host, variables, plan, index) for index in (0, 1))
    slow = "Environment=APIARY_DOUBLE_PHASE_SECONDS=3"
    with first.changed(slow), second.changed():
        host.check_output(f"systemctl stop {first.name} {second.name}")
        host.check_output(f"systemctl start --no-block {first.name} {second.name}")
        wanted = f"waiting for {first.name} to read the weights"
        await_true(lambda: wanted in second.show("StatusText")["StatusText"])
        # Not longer than that: the first compiles and captures yet.
        await_true(lambda: wanted not in second.show("StatusText")["StatusText"])
        assert first.show("ActiveState") == {"ActiveState": "activating"}
        await_true(lambda: second.show("ActiveState")["ActiveState"] == "active")


@pytest.mark.double
def test_a_supervisor_that_hangs_is_ended_by_systemd(unit):
    with unit.changed(QUICK, "WatchdogSec=10", "TimeoutAbortSec=1"):
        unit.systemctl("restart")
        unit.host.check_output(f"kill -STOP {unit.show('MainPID')['MainPID']}")
        unit.restarted(0)
        assert unit.ask(1) == 200
