# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets reach the engine, and nobody finds them anywhere else."""

import contextlib
import json
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.double

# The controller must not read them in this file's compiled form either, so they are put together.
KEYS = {"VLLM_API_KEY": "planted" + "-api-key-5d1f", "HF_TOKEN": "hf_planted" + "TokenOfTheHub7"}
OTHER = "planted" + "-api-key-another-one"

# Searches what people, other users and backups see; prints {place: [names of keys found]}.
SEARCH = """
import glob, json, os, subprocess, sys

keys = {{name: bytes.fromhex(value) for name, value in {keys!r}.items()}}
places = {{}}

def look(place, data):
    found = sorted(name for name, key in keys.items() if key in data)
    if found:
        places.setdefault(place, []).extend(found)

def read(path):
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""

for path in glob.glob("/proc/[0-9]*/cmdline"):
    look("arguments", read(path))
for path in glob.glob("/proc/[0-9]*/environ"):
    ours = b"apiary.slice" in read(path.replace("environ", "cgroup"))
    look("environment of a replica" if ours else "environment of others", read(path))
for root in ("/etc", "/run/systemd", "/run/apiary", "/usr/libexec", "/var/cache", "/var/lib/apiary",
             "/var/log", "/tmp", "/var/tmp", "/root", "/home"):
    for directory, names, files in os.walk(root):
        for name in files:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path):
                look("credentials" if "/credentials/" in path else path, read(path))
for command in (["journalctl", "--no-pager", "--output=export"], ["systemctl", "show", "apiary-*"],
                ["systemctl", "status", "--full", "--lines=1000", "apiary-*"],
                ["systemctl", "cat", "apiary-*"]):
    look(" ".join(command[:2]), subprocess.run(command, capture_output=True).stdout)
print(json.dumps(places))
"""


@pytest.fixture(scope="module")
def with_secrets(plan):
    deployment = {**plan["deployment"], "secrets": sorted(KEYS)}
    return {**plan, "deployment": deployment}


class Watch:
    """Looks at the arguments of every process of this machine, all the while."""

    def __init__(self):
        self.seen, self.looks = set(), 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self._done.is_set():
            self.looks += 1
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                # One that ends while it is looked at.
                with contextlib.suppress(OSError):
                    text = path.read_bytes()
                    self.seen.update(name for name, key in KEYS.items() if key.encode() in text)
            self._done.wait(0.01)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_problem):
        self._done.set()
        self._thread.join()


@pytest.fixture(scope="module")
def watch():
    return Watch()


@pytest.fixture(scope="module")
def given(serve, plan, with_secrets, host, watch):
    """The output of the run that brought the secrets; afterwards they are taken away again."""
    with watch:
        done = serve("-vvv", "--diff", given=with_secrets, replicas_secrets=KEYS)
    yield done
    serve()
    assert host.file(directory(with_secrets)).listdir() == plan["deployment"]["secrets"]


def directory(plan):
    return f"/etc/apiary/{plan['deployment']['name']}/credentials"


@pytest.fixture
def search(host, upload):
    def search(**keys):
        coded = {name: value.encode().hex() for name, value in keys.items()}
        upload("/usr/local/lib/apiary-search.py", SEARCH.format(keys=coded))
        return json.loads(host.check_output("python3 -B /usr/local/lib/apiary-search.py"))

    yield search
    host.run("rm -f /usr/local/lib/apiary-search.py")


def status_of(variables, replica, key):
    """The status that a replica answers a question with."""
    port = variables["lab_ports"][str(replica["port"])]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as refusal:
        return refusal.code


def test_the_engine_has_them_and_nobody_else(given, search):
    found = search(**KEYS)
    assert set(found) == {"credentials", "environment of a replica"}
    assert set(found["environment of a replica"]) == set(KEYS)


def test_the_engine_asks_for_the_key(given, variables, with_secrets):
    for replica in with_secrets["replicas"]:
        assert status_of(variables, replica, None) == 401
        assert status_of(variables, replica, KEYS["VLLM_API_KEY"]) == 200


def test_the_files_are_roots_alone(given, host, with_secrets):
    folder = host.file(directory(with_secrets))
    assert (folder.user, folder.mode) == ("root", 0o700)
    for name, value in KEYS.items():
        file = host.file(f"{directory(with_secrets)}/{name}")
        assert (file.user, file.group, file.mode) == ("root", "root", 0o600)
        assert file.content_string == value


def test_the_controller_shows_none(given, variables):
    """Not at -vvv, not with --diff, and not in what a run leaves behind."""
    assert "a secret" in given.stdout
    assert [name for name, value in KEYS.items() if value in given.stdout + given.stderr] == []
    for path in Path(variables["apiary_artifacts"]).rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert not [value for value in KEYS.values() if value.encode() in text], path


def test_no_process_has_one_among_its_arguments_while_the_playbook_runs(given, watch):
    """Of the controller, and, since the lab's hosts are containers, of the host."""
    assert watch.looks > 20
    assert watch.seen == set()


def test_a_second_run_changes_nothing(given, serve, with_secrets):
    assert " changed=0 " in serve(given=with_secrets, replicas_secrets=KEYS).stdout
    # Nor does one that does not know the values: the host keeps them.
    assert " changed=0 " in serve(given=with_secrets).stdout


def runs(host, plan):
    units = " ".join(replica["unit"] for replica in plan["replicas"])
    return host.check_output(f"systemctl show --property=InvocationID --value {units}").split()


def test_a_changed_secret_restarts_what_has_the_old_one(
    given, serve, host, with_secrets, search, variables
):
    before = runs(host, with_secrets)
    new = {**KEYS, "VLLM_API_KEY": OTHER}
    announced = serve("--check", "--diff", given=with_secrets, replicas_secrets=new)
    assert "another secret" in announced.stdout
    assert f"restart: {with_secrets['replicas'][0]['unit']}" in announced.stdout
    assert runs(host, with_secrets) == before
    done = serve("-vvv", "--diff", given=with_secrets, replicas_secrets=new)
    assert OTHER not in done.stdout + done.stderr
    assert not set(runs(host, with_secrets)) & set(before)
    assert search(old=KEYS["VLLM_API_KEY"]) == {}
    assert status_of(variables, with_secrets["replicas"][0], OTHER) == 200
    serve(given=with_secrets, replicas_secrets=KEYS)


def test_a_key_that_turns_is_accepted_beside_the_other(
    given, serve, with_secrets, search, variables
):
    both = {**KEYS, "VLLM_API_KEY": [KEYS["VLLM_API_KEY"], OTHER]}
    done = serve("-vvv", "--diff", given=with_secrets, replicas_secrets=both)
    assert not [key for key in both["VLLM_API_KEY"] if key in done.stdout + done.stderr]
    replicas = with_secrets["replicas"]
    for replica in replicas:
        assert status_of(variables, replica, None) == 401
        assert {status_of(variables, replica, key) for key in both["VLLM_API_KEY"]} == {200}
    # Beside the credentials in a file of the engine's user, which goes with the second key.
    found = search(other=OTHER)
    assert set(found) == {
        "credentials",
        *(f"/run/apiary/{one['unit']}/keys.yaml" for one in replicas),
    }
    serve(given=with_secrets, replicas_secrets=KEYS)
    assert search(other=OTHER) == {}
    assert status_of(variables, replicas[0], OTHER) == 401


@pytest.mark.parametrize(
    ("secrets", "values", "code"),
    [
        (["NOBODY_GAVE", *KEYS], KEYS, "REPLICA-SECRET-MISSING"),
        (["VLLM_API_KEY"], KEYS, "REPLICA-SECRET-UNNAMED"),
    ],
)
def test_a_refusal_changes_nothing(given, serve, host, with_secrets, secrets, values, code):
    before = runs(host, with_secrets), host.check_output(f"ls {directory(with_secrets)}")
    other = {**with_secrets, "deployment": {**with_secrets["deployment"], "secrets": secrets}}
    done = serve("-vvv", given=other, replicas_secrets=values, check=False)
    assert done.returncode != 0
    assert code in done.stdout
    assert [name for name, value in KEYS.items() if value in done.stdout + done.stderr] == []
    assert (runs(host, with_secrets), host.check_output(f"ls {directory(with_secrets)}")) == before
