# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Podman's own generator, of Debian 13's package where the machine has none, reads our files."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import render_systemd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.host.containers import (
    container_plan,
    exec_words,
    generate,
    quadlet_generator,
    with_replica,
)

GOLDEN = Path(__file__).parents[2] / "golden/containers/quadlet/etc/containers/systemd"
# Others are refused: CONTAINER-WORD.
TEXT = st.text(st.characters(max_codepoint=0x17F).filter(str.isprintable), min_size=1)


@pytest.fixture(scope="module", autouse=True)
def generator():
    program, problem = quadlet_generator()
    if program is None:
        pytest.skip(problem)


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    """What the generator makes of every golden quadlet."""
    directory = tmp_path_factory.mktemp("golden") / "quadlets"
    shutil.copytree(GOLDEN, directory)
    return generate(directory)


def quadlets(plan, directory):
    directory.mkdir(exist_ok=True)
    for item in render_systemd(plan):
        if item.path.endswith(".container"):
            (directory / Path(item.path).name).write_text(item.content)
    return directory


def test_every_golden_becomes_the_service_of_its_plan(services):
    assert sorted(services) == [f"apiary-qwen3-235b-{index}.service" for index in (0, 1)]


@pytest.mark.parametrize("index", [0, 1])
def test_the_service_is_what_the_replica_needs(services, index):
    text = services[f"apiary-qwen3-235b-{index}.service"]
    for line in (
        "Type=notify",
        "NotifyAccess=all",
        "KillMode=mixed",
        "Delegate=yes",
        "Slice=apiary.slice",
        "Restart=always",
        "RestartPreventExitStatus=2 78",
        "WantedBy=apiary-qwen3-235b.target",
    ):
        assert line in text.splitlines()
    # The weights' mount may fail; it is wanted, and tried again with each start.
    assert "RequiresMountsFor=/srv" not in text
    assert re.search(r"^Wants=.* srv-models\.mount ", text, re.MULTILINE)
    words = exec_words(text, {"APIARY_ARGUMENTS": "--user=998:998 --device=/dev/kfd"})
    for word in ("--cgroups=split", "--sdnotify=container", "--read-only", "--user=998:998"):
        assert word in words
    image = next(number for number, word in enumerate(words) if "@sha256:" in word)
    assert words[image - 2 : image] == ["--user=998:998", "--device=/dev/kfd"]
    assert tuple(words[image + 6 :]) == container_plan("quadlet").replicas[index].argv[1:]


def test_real_systemd_finds_nothing_wrong(services, tmp_path):
    for name, text in services.items():
        # The programs that it would start are on hosts alone.
        text = re.sub(r"(Exec\w+=-?)/\S+", r"\1/bin/true", text)
        (tmp_path / name).write_text(text)
    (tmp_path / "apiary-qwen3-235b.target").write_text("[Unit]\nDescription=x\n")
    (tmp_path / "apiary.slice").write_text("[Unit]\nDescription=x\n")
    done = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            "--man=no",
            "--recursive-errors=no",
            *tmp_path.glob("*.service"),
        ],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = [line for line in done.stderr.splitlines() if "apiary" in line]
    assert said == []


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=TEXT, argument=TEXT)
def test_words_come_through_the_generator_unchanged(tmp_path, value, argument):
    plan = container_plan("quadlet")
    replica = plan.replicas[0]
    plan = with_replica(
        plan,
        0,
        env={**replica.env, "ANY_TEXT": value},
        argv=(*replica.argv, "--hf-overrides", argument),
    )
    made = generate(quadlets(plan, tmp_path / "quadlets"))["apiary-qwen3-235b-0.service"]
    words = exec_words(made, {})
    assert words[-2:] == ["--hf-overrides", argument]
    assert f"ANY_TEXT={value}" in words


def test_a_file_it_cannot_read_gives_no_service(tmp_path):
    directory = quadlets(container_plan("quadlet"), tmp_path / "quadlets")
    for path in directory.iterdir():
        path.write_text(path.read_text().replace("Image=", "Imagery="))
    with pytest.raises(AssertionError, match="Imagery"):
        generate(directory)
