# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Engines from wheels and images: made whole or known as unfinished, and never changed in place."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError
from ansible_collections.apiary.instinct.plugins.module_utils.resources import (
    converge,
    engines,
    image,
)
from ansible_collections.apiary.instinct.plugins.module_utils.resources.types import Host

IMAGE = f"registry.example/vllm@sha256:{'b' * 64}"
FACTS = {"torch": "2.9.0+rocm7.0", "aiter": "0.1.26", "rocm": "7.0", "gfx": ["gfx942"]}


@pytest.fixture(autouse=True)
def _records(monkeypatch, tmp_path):
    monkeypatch.setattr(engines, "RECORDS", str(tmp_path / "records"))


class Machine:
    """Runs what the kinds run; `fails` maps a word of a command to its exit status."""

    def __init__(self, version="0.33.0+rocm700", **fails):
        self.version, self.fails, self.ran, self.seen = version, fails, [], {}
        self.images = set()

    def run_command(self, argv, handle_exceptions=True, environ_update=None):
        self.ran.append(argv)
        for word, code in self.fails.items():
            if word in argv:
                return code, "", f"{word} is not to be had"
        if "venv" in argv:
            os.makedirs(f"{argv[-1]}/bin")
        if "pull" in argv:
            self.images.add(argv[-1])
        if "inspect" in argv:
            return (0 if argv[-1] in self.images else 1), "", ""
        for part in argv:
            if part.startswith(("--authfile=", "--config=")):
                place = part.partition("=")[2]
                path = place if part.startswith("--auth") else f"{place}/config.json"
                self._see(path)
        config = (environ_update or {}).get("PIP_CONFIG_FILE")
        if config:
            self._see(config)
        if argv[-1] == engines.FACTS:
            return 0, f"a warning\n{json.dumps(FACTS)}\n", ""
        return 0, f"{self.version}\n", ""

    def _see(self, path):
        mode = oct(os.stat(os.path.dirname(path)).st_mode)
        self.seen[path] = (Path(path).read_text(encoding="utf-8"), mode)


def converged(machine, resource, secrets=None):
    """Inspect and apply one resource; return its steps."""
    host = Host(SimpleNamespace(run_command=machine.run_command), secrets or {})
    (item,) = converge.items([resource])
    difference = item.inspect(host)
    if difference.refusals:
        raise ApiaryError(*difference.refusals)
    if difference.changed:
        item.apply(host, difference)
    return list(difference.steps)


def of_wheels(tmp_path, **more):
    pins = {"version": "0.33.0", "requirements": "vllm==0.33.0 --hash=sha256:0"}
    return {"kind": "wheels", "path": str(tmp_path / "vllm/0.33.0"), **pins, **more}


def test_wheels_are_installed_once_with_hashes_and_recorded(tmp_path):
    machine, resource = Machine(), of_wheels(tmp_path, wheels="/srv/wheels")
    assert converged(machine, resource) == [f"install vLLM 0.33.0 into {resource['path']}"]
    (pip,) = [argv for argv in machine.ran if "pip" in argv]
    assert {"--require-hashes", "--only-binary=:all:", "--no-index"} <= set(pip)
    record = engines.read_record(resource["path"])
    assert record["complete"]
    assert record["facts"] == FACTS
    assert converged(machine, resource) == []


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        (Machine(pip=1), "ENGINE-INSTALL"),
        (Machine(venv=1), "ENGINE-INSTALL"),
        (Machine("0.32.0"), "ENGINE-VERSION"),
        (Machine(""), "ENGINE-VERSION"),
    ],
)
def test_what_fails_is_one_finding_and_the_next_run_begins_again(tmp_path, machine, code):
    resource = of_wheels(tmp_path)
    with pytest.raises(ApiaryError) as refusal:
        converged(machine, resource)
    assert refusal.value.findings[0].code == code
    assert converged(Machine(), resource) != []
    assert converged(Machine(), resource) == []


@pytest.mark.parametrize(
    ("index", "trusted"),
    [
        ("http://u:p@10.0.0.5:8080/simple", ["--trusted-host=10.0.0.5:8080"]),
        ("http://mirror.example/simple", ["--trusted-host=mirror.example"]),
        ("https://mirror.example/simple", []),
    ],
)
def test_an_index_of_plain_http_is_read_for_hashes_say_what_is_right(tmp_path, index, trusted):
    machine = Machine()
    converged(machine, of_wheels(tmp_path, index_url=index))
    (install,) = [argv for argv in machine.ran if "install" in argv]
    assert "--require-hashes" in install
    assert [word for word in install if word.startswith("--trusted-host")] == trusted


def test_other_pins_and_others_directories_are_left_alone(tmp_path):
    resource = of_wheels(tmp_path)
    converged(Machine(), resource)
    with pytest.raises(ApiaryError, match="ENGINE-PINS-CHANGED"):
        converged(Machine(), {**resource, "requirements": "vllm==0.33.0 --hash=sha256:1"})
    (tmp_path / "theirs").mkdir()
    with pytest.raises(ApiaryError, match="ENGINE-DIRECTORY"):
        converged(Machine(), {**resource, "path": str(tmp_path / "theirs")})
    gone = {"kind": "wheels", "path": str(tmp_path / "theirs"), "state": "absent"}
    assert converged(Machine(), gone) == []
    assert (tmp_path / "theirs").is_dir()


def test_an_engine_goes_with_its_record(tmp_path):
    resource = of_wheels(tmp_path)
    converged(Machine(), resource)
    gone = {"kind": "wheels", "path": resource["path"], "state": "absent"}
    assert converged(Machine(), gone) == [f"remove the engine in {resource['path']}"]
    assert not os.path.exists(resource["path"])
    assert converged(Machine(), gone) == []


@pytest.mark.parametrize("program", ["podman", "docker"])
def test_an_image_is_pulled_once_with_credentials_that_do_not_stay(monkeypatch, program):
    monkeypatch.setattr(image.shutil, "which", lambda name: f"/usr/bin/{name}")
    machine = Machine()
    resource = {"kind": "image", "reference": IMAGE, "program": program, "version": "0.33.0"}
    named = {**resource, "credentials": "registries"}
    assert converged(machine, named, {"registries": "a secret"}) == [f"pull {IMAGE}"]
    assert [text for text, _mode in machine.seen.values()] == ["a secret"]
    assert [mode for _text, mode in machine.seen.values()] == ["0o40700"]
    assert not any(os.path.exists(path) for path in machine.seen)
    assert not any("a secret" in part for argv in machine.ran for part in argv)
    assert engines.read_record(IMAGE)["facts"] == FACTS
    assert converged(machine, named) == []
    machine.images.clear()
    assert converged(machine, resource) == [f"pull {IMAGE}"]


def test_an_image_that_is_used_stays_for_now(monkeypatch):
    monkeypatch.setattr(image.shutil, "which", lambda name: f"/usr/bin/{name}")
    machine = Machine(rmi=2)
    resource = {"kind": "image", "reference": IMAGE, "program": "podman", "version": "0.33.0"}
    converged(machine, resource)
    gone = {"kind": "image", "reference": IMAGE, "program": "podman", "state": "absent"}
    assert converged(machine, gone) == [f"remove the image {IMAGE}"]
    machine.fails = {}
    assert converged(machine, gone) == [f"remove the image {IMAGE}"]
    assert converged(machine, gone) == []


def test_a_program_that_is_not_there_yet_is_no_refusal(monkeypatch):
    monkeypatch.setattr(image.shutil, "which", lambda name: None)
    resource = {"kind": "image", "reference": IMAGE, "program": "podman", "version": "0.33.0"}
    (item,) = converge.items([resource])
    assert item.inspect(Host(SimpleNamespace())).steps == (f"pull {IMAGE}",)


@pytest.mark.parametrize("words", ["", "no json", "[1]", "x" * 5000])
def test_an_engine_that_says_nothing_of_itself_has_no_facts(words):
    host = Host(SimpleNamespace(run_command=lambda argv, **_options: (0, words, "")))
    assert engines.facts_of(host, ["python"]) == {}
