# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No unit of a replica can be cancelled for good by what comes up late, or not yet."""

import re
import shutil
import subprocess

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache.mounts import (
    units_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import render_systemd

from support.demo import demo_plan
from support.host.containers import container_plan

RUNTIMES = ("native", "docker", "quadlet")


def units(runtime):
    plan = demo_plan() if runtime == "native" else container_plan(runtime)
    return [
        item.content
        for item in render_systemd(plan)
        if item.path.endswith((".service", ".container"))
    ]


def lines(unit, name):
    return " ".join(re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)).split()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_mount_is_wanted_and_waited_for_and_required_by_nobody(runtime):
    path = "/srv/models/Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"
    mounts = units_of(path)
    assert mounts[:2] == ["srv.mount", "srv-models.mount"]
    assert len(units(runtime)) == 2
    for unit in units(runtime):
        for name in ("Wants", "After", "PartOf"):
            assert set(mounts) <= set(lines(unit, name))
        assert not re.search(r"^(Requires\w*|Requisite|BindsTo)=", unit, re.MULTILINE)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_it_is_tried_without_end(runtime):
    for unit in units(runtime):
        assert lines(unit, "StartLimitIntervalSec") == ["0"]
        assert lines(unit, "Restart") == ["always"]
        assert "StartLimitBurst" not in unit


def test_docker_is_wanted_and_who_stops_it_stops_its_replicas_first():
    for unit in units("docker"):
        for name in ("Wants", "After", "PartOf"):
            assert "docker.service" in lines(unit, name)


@pytest.mark.parametrize(
    "path", ["/srv/models/a b/.c", "/srv//models/", "/srv/x-y/ü%z", "/srv/../srv/models", "/a"]
)
def test_mounts_are_named_as_systemd_names_them(path):
    if shutil.which("systemd-escape") is None:
        pytest.skip("no systemd-escape")
    command = ["systemd-escape", "--path", "--suffix=mount"]
    normal = "/" + path.strip("/").replace("//", "/").replace("srv/../", "")
    parts = normal.strip("/").split("/")
    paths = ["/" + "/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    done = subprocess.run([*command, *paths], capture_output=True, text=True, check=True)
    assert units_of(path) == done.stdout.split()
