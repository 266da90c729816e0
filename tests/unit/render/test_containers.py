# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.containers import (
    engine_findings,
    review,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import render_systemd

from support.demo import demo_plan
from support.host.containers import container_plan, exec_words, with_replica

QUADLET = "/etc/containers/systemd/apiary-qwen3-235b-{}.container"
SERVICE = "/etc/systemd/system/apiary-qwen3-235b-{}.service"
PATHS = {"quadlet": QUADLET, "docker": SERVICE}
RUNTIMES = tuple(PATHS)


def rendered(runtime, plan=None):
    return {item.path: item for item in render_systemd(plan or container_plan(runtime))}


def unit(runtime, index=0, plan=None):
    return rendered(runtime, plan)[PATHS[runtime].format(index)].content


def section(text, name):
    """Return [(key, value)] of one section of a unit file, in order."""
    lines = text.split(f"[{name}]\n", 1)[1].split("\n[", 1)[0].replace("\\\n", " ").splitlines()
    return [tuple(line.split("=", 1)) for line in lines if line and not line.startswith("#")]


def codes(findings):
    return [(one.code, one.severity) for one in findings]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("index", [0, 1])
def test_golden(golden, runtime, index):
    path = PATHS[runtime].format(index)
    golden(f"containers/{runtime}{path}", unit(runtime, index))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_everything_but_the_unit_is_as_without_a_container(runtime):
    native = {item.path: item.content for item in render_systemd(demo_plan())}
    files = rendered(runtime)
    shared = [path for path in native if path.startswith(("/usr/libexec", "/etc/systemd"))]
    shared = [path for path in shared if not path.endswith(".service")]
    assert "/etc/systemd/system/apiary-qwen3-235b.target" in shared
    assert "/etc/systemd/system/apiary.slice" in shared
    assert all(files[path].content == native[path] for path in shared)
    assert files["/etc/apiary/qwen3-235b/replica-0.json"].unit == "apiary-qwen3-235b-0.service"
    assert not any(path.endswith(".env") for path in files)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_no_number_of_this_boot_and_no_secret_is_stored(runtime):
    text = unit(runtime)
    for word in ("renderD", "VISIBLE_DEVICES", "/dev/dri", "by-path", "--user=", "--group-add"):
        assert word not in text
    assert "VLLM_API_KEY" not in text
    assert "--credentials /etc/apiary/qwen3-235b/credentials" in text


def test_a_quadlet_has_keys_of_the_oldest_generator_only():
    known = set(knowledge("serving/containers.yml")["engines"]["quadlet"]["keys"])
    used = {key for key, _value in section(unit("quadlet"), "Container")}
    assert used <= known


def test_the_engine_has_the_variables_of_the_plan():
    plan = container_plan("docker")
    words = exec_words(unit("docker"), {})
    given = dict(word.removeprefix("--env=").split("=", 1) for word in words if "--env=" in word)
    assert {name: given[name] for name in plan.replicas[0].env} == plan.replicas[0].env
    quadlet = [
        value.split("=", 1)
        for key, value in section(unit("quadlet"), "Container")
        if key == "Environment"
    ]
    ours = {"NOTIFY_SOCKET"}
    assert {n: v for n, v in quadlet if n not in ours} == {
        n: v for n, v in given.items() if n not in ours
    }


def test_what_one_start_resolves_becomes_words_of_docker():
    extra = "--user=998:998 --device=/dev/kfd --device=/dev/dri/renderD129 --group-add=109"
    words = exec_words(unit("docker"), {"APIARY_ARGUMENTS": extra})
    image = next(index for index, word in enumerate(words) if "@sha256:" in word)
    assert words[image - 4 : image] == extra.split()
    assert words[image + 1 : image + 7] == [
        "run",
        "--spec",
        "/etc/apiary/qwen3-235b/replica-0.json",
        "--",
        "vllm",
        "serve",
    ]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_rights_and_room(runtime):
    text = unit(runtime)
    for words in (
        "no-new-privileges" if runtime == "docker" else "NoNewPrivileges=true",
        "--read-only" if runtime == "docker" else "ReadOnly=true",
        "--cap-drop=ALL" if runtime == "docker" else "DropCapability=all",
        "--cpuset-cpus=2-63,130-191",
        "--cpuset-mems=0",
        "--shm-size=16g",
        "--ipc=private",
        "--ulimit=memlock=-1:-1",
        "Slice=apiary.slice",
        "/srv/models/Qwen/Qwen3-235B-A22B-Instruct-2507-FP8:ro",
        "HF_HUB_OFFLINE=1",
        "--empty home",
    ):
        assert words in text
    assert "--privileged" not in text
    assert "AITER_JIT_DIR" not in text
    assert "/var/cache/apiary-qwen3-235b-1" not in text


def test_only_a_model_that_sees_has_a_directory_of_miopen():
    plan = container_plan("quadlet")
    seeing = dataclasses.replace(plan, model=dataclasses.replace(plan.model, vision={"depth": 27}))
    assert "MIOPEN" not in unit("quadlet")
    text = unit("quadlet", plan=seeing)
    assert "MIOPEN_USER_DB_PATH=/var/cache/apiary-qwen3-235b-0/miopen" in text
    assert "--keep miopen" in text


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (None, [("CONTAINER-NO-IMAGE", "error")]),
        (
            "vllm/vllm-openai-rocm:v0.33.0",
            [("CONTAINER-UNPINNED", "warning"), ("CONTAINER-IPC-MODE", "info")],
        ),
        ("registry.example.com/vllm@sha256:" + "0" * 64, []),
    ],
)
def test_images(image, expected):
    assert codes(review(container_plan("quadlet", image=image))) == expected


def test_a_plan_without_an_image_is_refused():
    with pytest.raises(ApiaryError, match="CONTAINER-NO-IMAGE"):
        render_systemd(container_plan("docker", image=None))


def test_what_podman_would_garble_is_refused():
    plan = container_plan("quadlet")
    argv = (*plan.replicas[1].argv, "--chat-template", "")
    assert ("CONTAINER-WORD", "error") in codes(review(with_replica(plan, 1, argv=argv)))
    env = {**plan.replicas[0].env, "ANY": "a\x80b"}
    assert ("CONTAINER-WORD", "error") in codes(review(with_replica(plan, 0, env=env)))
    model = dataclasses.replace(plan.deployment.model, path="/srv/a:b")
    deployment = dataclasses.replace(plan.deployment, model=model)
    assert ("CONTAINER-PATH", "error") in codes(
        review(dataclasses.replace(plan, deployment=deployment))
    )


def test_who_sets_the_variable_is_not_told_of_it():
    plan = container_plan("quadlet")
    for index, replica in enumerate(plan.replicas):
        env = {**replica.env, "HSA_ENABLE_IPC_MODE_LEGACY": "0"}
        plan = with_replica(plan, index, env=env)
    assert codes(review(plan)) == []


@pytest.mark.parametrize(
    ("runtime", "version", "expected"),
    [
        ("quadlet", "podman version 4.3.1", ["CONTAINER-RUNTIME-OLD"]),
        ("quadlet", "podman version 3.4.4", ["CONTAINER-RUNTIME-OLD"]),
        ("quadlet", "podman version 4.4.0", []),
        ("quadlet", "podman version 5.4.2", []),
        ("quadlet", "podman version 4.10.0", []),
        ("quadlet", None, ["CONTAINER-ENGINE-ABSENT"]),
        ("docker", "Docker version 19.03.8, build afacb8b", ["CONTAINER-RUNTIME-OLD"]),
        ("docker", "Docker version 20.10.24+dfsg1, build 297e128", []),
        ("docker", "", ["CONTAINER-ENGINE-ABSENT"]),
        ("native", None, []),
    ],
)
def test_the_engine_of_the_host(runtime, version, expected):
    assert [one.code for one in engine_findings(runtime, version, "gpu-001")] == expected


def test_real_systemd_finds_nothing_wrong_with_docker_s_units(tmp_path):
    for item in render_systemd(container_plan("docker")):
        if item.path.startswith("/etc/systemd/system/"):
            text = re.sub(r"(Exec\w+=[-+]*)/\S+", r"\1/bin/true", item.content)
            (tmp_path / Path(item.path).name).write_text(text)
    (tmp_path / "docker.service").write_text("[Service]\nExecStart=/bin/true\n")
    units = sorted(tmp_path.glob("apiary*"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert [line for line in done.stderr.splitlines() if "apiary" in line] == []


def test_the_unit_around_docker_is_exposed_little(tmp_path):
    path = tmp_path / "apiary-x-0.service"
    path.write_text(unit("docker"))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", path],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
