# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host's containers need, and what is refused before anything is touched."""

import json
import tomllib

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.container_runtime import (
    Settings,
    decide,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.container_runtime.engine import (
    DAEMON_JSON,
    PROGRAM,
    REGISTRIES_CONF,
    SPECIFICATION,
    UNIT,
    Mirror,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import decide as by_name

from support.host.container import applied, failing, host, policy, refused, said


def text(plan, path):
    (found,) = (one for one in plan.files if one.path == path)
    return found.content


@pytest.mark.parametrize(
    ("settings", "machine"),
    [
        ({}, {}),
        ({"engine": "docker"}, {"docker": "28.1.1"}),
        ({"engine": "docker", "cdi_enabled": False}, {"docker": "20.10.24"}),
        ({"mirrors": (Mirror("docker.io", "mirror.example.com/hub"),)}, {"podman": "5.4.2"}),
    ],
)
def test_every_check_passes_on_the_host_that_the_plan_makes(gpus, settings, machine):
    evidence = host(gpus, **machine)
    plan = decide(Settings(**settings), evidence)
    right = applied(evidence, plan)
    assert failing(right, **settings) == {}
    assert {one.path: one.content for one in decide(Settings(**settings), right).files} == {
        one.path: one.content for one in plan.files
    }


def test_settings_are_read_by_name_and_checked(gpus):
    with pytest.raises(
        ApiaryError, match=r"field engine: expected one of (podman, docker|docker, podman)"
    ):
        by_name("container_runtime", {"engine": "lxc"}, host(gpus))


def test_the_boot_service(gpus, golden):
    golden("host/apiary-cdi.service", text(decide(Settings(), host(gpus)), UNIT))


def test_the_program_that_is_installed_is_a_program(gpus):
    program = next(one for one in decide(Settings(), host(gpus)).files if one.path == PROGRAM)
    assert program.content.startswith("#!/usr/bin/env python3\n# SPDX")
    assert program.mode == "0755"
    compile(program.content, PROGRAM, "exec")


@pytest.mark.parametrize(
    ("engine", "version", "specification"),
    [
        ("podman", "4.3.1", "0.5.0"),
        ("podman", "4.9.3", "0.5.0"),
        ("podman", "5.3", "0.7.0"),
        ("docker", "26.1.5", "0.5.0"),
        ("docker", "27.0.1", "0.7.0"),
    ],
)
def test_the_specification_is_one_that_the_engine_reads(gpus, engine, version, specification):
    evidence = host(gpus, **{"podman": None, engine: version})
    document = json.loads(text(decide(Settings(engine=engine), evidence), SPECIFICATION))
    assert document["cdiVersion"] == specification
    assert ("additionalGids" in document["containerEdits"]) == (specification == "0.7.0")


def test_a_version_that_is_not_known_yet_is_asked_for(gpus):
    plan = decide(Settings(), host(gpus, podman=None, commands={"engines_apt": said("")}))
    assert plan.refresh
    assert plan.packages == (("podman", "netavark", "aardvark-dns", "catatonit"),)
    known = host(gpus, podman=None, commands={"engines_apt": policy(podman="4.3.1+ds1-8")})
    assert not decide(Settings(), known).refresh


@pytest.mark.parametrize(
    ("release", "engine", "packages"),
    [
        ("debian-12", "docker", ("docker.io",)),
        ("debian-13", "docker", ("docker.io", "docker-cli")),
        ("rhel-9", "podman", ("podman",)),
    ],
)
def test_packages_by_family(gpus, release, engine, packages):
    plan = decide(Settings(engine=engine), host(gpus, release=release, podman=None))
    assert plan.packages == (packages,)


@pytest.mark.parametrize(
    ("release", "command", "output", "version"),
    [
        (
            "debian-12",
            "engines_apt",
            "podman:\n  Installed: (none)\n  Candidate: 4.3.1+ds1\n",
            "4.3.1",
        ),
        ("ubuntu-24.04", "engines_apt", "podman:\n  Candidate: (none)\n", None),
        (
            "rhel-9",
            "engines_dnf",
            "Available Packages\npodman.x86_64  6:5.2.2-1.el9  app\n",
            "5.2.2",
        ),
    ],
)
def test_versions_that_would_be_installed(gpus, release, command, output, version):
    evidence = host(gpus, release=release, podman=None, commands={command: said(output)})
    assert decide(Settings(), evidence).version == version


@pytest.mark.parametrize(
    ("machine", "settings", "code", "told"),
    [
        ({"podman": "3.4.4"}, {}, "CONTAINER-ENGINE-OLD", "podman 3.4.4 (installed)"),
        ({"podman": "4.2.0"}, {}, "CONTAINER-ENGINE-OLD", "at least 4.3"),
        ({"docker": "20.10.24"}, {"engine": "docker"}, "CONTAINER-ENGINE-OLD", "at least 25.0"),
        (
            {"podman": None},
            {"install_enabled": False},
            "CONTAINER-ENGINE-ABSENT",
            "install_enabled",
        ),
        ({"release": "rhel-9"}, {"engine": "docker"}, "CONTAINER-ENGINE-ABSENT", "no package"),
        (
            {"docker": "28.0", "files": {DAEMON_JSON: "{,}"}},
            {"engine": "docker"},
            "CONTAINER-DAEMON-JSON",
            "cannot be read",
        ),
        (
            {"docker": "28.0", "files": {DAEMON_JSON: "[]"}},
            {"engine": "docker"},
            "CONTAINER-DAEMON-JSON",
            "no object",
        ),
        (
            {"docker": "28.0"},
            {"engine": "docker", "mirrors": (Mirror("quay.io", "mirror.example.com"),)},
            "CONTAINER-MIRROR",
            "docker.io only",
        ),
        (
            {"docker": "28.0"},
            {"engine": "docker", "mirrors": (Mirror("docker.io", "mirror.example.com/hub"),)},
            "CONTAINER-MIRROR",
            "no path",
        ),
        (
            {"docker": "28.0", "commands": {"docker_containers": said("1a2b\n3c4d\n")}},
            {"engine": "docker"},
            "CONTAINER-RUNNING",
            "2 containers run",
        ),
    ],
)
def test_what_is_refused_before_anything_is_touched(gpus, machine, settings, code, told):
    found = refused(host(gpus, **machine), **settings)
    assert list(found) == [code]
    assert told in found[code].message
    assert found[code].remedy


def test_a_password_in_a_mirror_is_refused_and_not_repeated(gpus):
    mirrors = (Mirror("docker.io", "user:secret@mirror.example.com"),)
    found = refused(host(gpus), mirrors=mirrors)["CONTAINER-MIRROR"]
    assert "secret" not in str(found)


def test_a_candidate_that_is_too_old_is_refused_before_it_is_installed(gpus):
    evidence = host(
        gpus, podman=None, commands={"engines_apt": policy(docker_io="20.10.24+dfsg1-1")}
    )
    found = refused(evidence, engine="docker")["CONTAINER-ENGINE-OLD"]
    assert "docker 20.10.24 (what Debian 12 has)" in found.message


def test_an_unknown_system_is_refused(gpus):
    with pytest.raises(ApiaryError, match=r"CONTAINER-OS: .* runs Arch Linux"):
        decide(Settings(), host(gpus, release="arch"))


def test_containers_that_live_through_a_restart_are_no_reason_to_refuse(gpus):
    evidence = host(
        gpus,
        docker="28.0",
        files={DAEMON_JSON: '{"live-restore": true}'},
        commands={"docker_containers": said("1a2b\n")},
    )
    assert refused(evidence, engine="docker") == {}


def test_nothing_to_change_is_no_reason_to_refuse(gpus):
    evidence = host(gpus, docker="28.0", commands={"docker_containers": said("1a2b\n")})
    right = applied(evidence, decide(Settings(engine="docker"), evidence))
    assert refused(right, engine="docker") == {}


@pytest.mark.parametrize(
    ("version", "asked"), [("25.0.5", True), ("28.1.1", True), ("28.2.0", False)]
)
def test_docker_is_asked_for_cdi_where_it_is_no_default(gpus, version, asked):
    plan = decide(Settings(engine="docker"), host(gpus, docker=version))
    assert (plan.daemon.get("features") == {"cdi": True}) is asked


def test_what_the_operator_sets_in_docker_wins(gpus):
    settings = Settings(engine="docker", docker_settings={"features": {"cdi": False}})
    daemon = decide(settings, host(gpus, docker="26.1.5")).daemon
    assert daemon["features"] == {"cdi": False}


def test_docker_judges_its_file_where_it_can(gpus):
    def command(version):
        return decide(
            Settings(engine="docker", cdi_enabled=False), host(gpus, docker=version)
        ).validate

    assert command("20.10.24") == ()
    assert command("27.5.1") == ("dockerd", "--validate", "--config-file", "%s")


def test_podman_is_told_mirrors(gpus):
    mirrors = (
        Mirror("docker.io", "mirror.example.com/hub"),
        Mirror("quay.io", "mirror.example.com"),
    )
    plan = decide(Settings(mirrors=mirrors), host(gpus))
    assert tomllib.loads(text(plan, REGISTRIES_CONF))["registry"] == [
        {"location": "docker.io", "mirror": [{"location": "mirror.example.com/hub"}]},
        {"location": "quay.io", "mirror": [{"location": "mirror.example.com"}]},
    ]


def test_files_of_the_other_engine_go(gpus):
    plan = decide(Settings(engine="docker"), host(gpus, docker="28.0"))
    assert text(plan, REGISTRIES_CONF) is None


def test_the_undo_takes_all_of_it(gpus):
    evidence = host(gpus, release="ubuntu-24.04", podman="4.9.3")
    there = applied(evidence, decide(Settings(), evidence))
    plan = decide(Settings(state="absent"), there)
    assert {one.content for one in plan.files} == {None}
    assert failing(applied(there, plan), state="absent") == {}


def test_without_gpus_there_is_no_specification_and_a_warning(no_gpus):
    plan = decide(Settings(), host(no_gpus))
    assert text(plan, SPECIFICATION) is None
    assert [one.code for one in plan.findings] == ["CONTAINER-NO-GPU"]
    assert failing(applied(host(no_gpus), plan)) == {}


def test_docker_is_not_asked_for_cdi_that_nobody_wants(gpus):
    settings = Settings(engine="docker", cdi_enabled=False)
    assert "features" not in decide(settings, host(gpus, docker="26.1.5")).daemon
