# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every unit that Apiary writes, as systemd itself scores it."""

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.host import telemetry
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.container_runtime import (
    specification,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.host_tuning import live
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.program import unit_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import (
    render_router_host,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import (
    closed,
    render_systemd,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Router,
    RouterSettings,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry import monitoring_role

from support.demo import demo_plan
from support.host.containers import container_plan
from support.topology.simulated import simulated_evidence

PLUGINS = Path(monitoring_role.__file__).parents[2]
EXPOSED = knowledge("units.yml")["exposed"]
# Where a [Service] is written; another file is to come here, and its unit into `units`.
SOURCES = {
    "plugin_utils/host/host_tuning/limits.py": {
        *("containerd.service", "docker.service"),
        *("gpuagent.service", "amd-metrics-exporter.service"),
    },
    "plugin_utils/host/units/apiary-host-tuning.service": {"apiary-host-tuning.service"},
    "plugin_utils/host/units/apiary-amdgpu.service": {"apiary-amdgpu.service"},
    "plugin_utils/host/units/apiary-telemetry.service": {"apiary-telemetry.service"},
    "plugin_utils/host/units/apiary-cdi.service": {"apiary-cdi.service"},
    "plugin_utils/host/units/apiary-amd-exporter.service": {
        "apiary-amd-exporter.service (docker)",
        "apiary-amd-exporter.service (podman)",
    },
    "plugin_utils/host/units/amd-exporter.conf": {"amd-metrics-exporter.service"},
    "plugin_utils/host/units/amd-exporter-agent.conf": {"gpuagent.service"},
    "plugin_utils/host/units/node-exporter.conf": {"prometheus-node-exporter.service"},
    "plugin_utils/render/templates/containers/replica.docker.j2": {
        "apiary-NAME-N.service (docker)"
    },
    "plugin_utils/render/templates/containers/replica.quadlet.j2": {"apiary-NAME-N.container"},
    "plugin_utils/render/templates/haproxy_drop_in.conf.j2": {"haproxy.service"},
    "plugin_utils/render/templates/router.service.j2": {"apiary-router.service"},
    "plugin_utils/render/templates/ports.service.j2": {"apiary-NAME-ports.service"},
    "plugin_utils/render/templates/replica.service.j2": {"apiary-NAME-N.service"},
    "plugin_utils/render/templates/monitoring/drop_in.conf.j2": {
        "prometheus.service",
        "prometheus-alertmanager.service",
    },
}
# Units of distributions, as far as they matter here: Debian's, and who they run as.
USERS = dict.fromkeys(
    ("prometheus-node-exporter.service", "prometheus.service", "prometheus-alertmanager.service"),
    "prometheus",
)
HEAD = re.compile(r'(?m)\[Service\](\\n|",|$)')
WHOLE = re.compile(r"(?m)^ExecStart=.")


def _replica(runtime):
    plan = demo_plan() if runtime == "native" else container_plan(runtime)
    (text, *_more) = [
        file.content
        for file in render_systemd(plan)
        if file.path.endswith((".service", ".container"))
    ]
    return text


def _ports():
    return next(item["content"] for item in closed(demo_plan(), []) if "PartOf" in str(item))


def _telemetry(system, **settings):
    found = from_document(Evidence, {**simulated_evidence(), "host": "gpu-001"}, "evidence")
    release = {"/etc/os-release": f"ID={system[0]}\nVERSION_ID={system[1]}\n"}
    found = dataclasses.replace(found, files={**found.files, **release})
    plan = telemetry.decide(telemetry.Settings(**settings), found)
    return {
        re.sub(r"\.d/.*", "", file.path).rpartition("/")[2]: file.content
        for service in (plan.node, plan.textfile, *plan.amd)
        for file in service.files
        if file.path.startswith("/etc/systemd/")
    }


def _monitoring(program):
    own = {
        f"{program}_unit": f"{program}.service",
        f"{program}_program": f"/usr/bin/{program}",
        "storage": "/var/lib/prometheus/metrics2",
        "alertmanager_storage": "/var/lib/prometheus/alertmanager",
        "retention": "15d",
        "retention_size": "",
        "listen": "192.0.2.9",
        "peers": [],
        "cluster_port": 9094,
        "prometheus_port": 9090,
        "web": True,
        "alertmanager_port": 9093,
        "prometheus_options": [],
        "alertmanager_options": [],
    }
    return monitoring_role._drop_in(own, program)["content"]


def units():
    """Return {name: its file or its drop-in} of every unit."""
    router = Router(RouterSettings(), ())
    routers = {
        re.sub(r"\.d/.*", "", one.path).rpartition("/")[2]: one.content
        for one in render_router_host(router, "/usr/bin/python3")
        if one.path.endswith((".conf", ".service"))
    }
    cdi = specification.Specification(version="0.5.0", devices=(), gids=())
    tune = unit_text(live.UNIT, lines="ExecStart=/bin/true")
    digest = "sha256:" + "ab" * 32
    exporter = "apiary-amd-exporter.service"
    of_engine = {
        engine: _telemetry(("debian", "12"), amd_digest=digest, amd_engine=engine)
        for engine in ("docker", "podman")
    }
    packaged = _telemetry(("ubuntu", "24.04"))
    limits = "[Service]\nLimitMEMLOCK=infinity\n"
    return {
        **{name: text for name, text in packaged.items() if name.endswith(".service")},
        **{f"{exporter} ({engine})": found[exporter] for engine, found in of_engine.items()},
        "apiary-NAME-N.service": _replica("native"),
        "apiary-NAME-N.service (docker)": _replica("docker"),
        "apiary-NAME-N.container": _replica("quadlet"),
        "apiary-NAME-ports.service": _ports(),
        "apiary-cdi.service": specification.unit(cdi).content,
        live.UNIT: tune,
        live.LOADER: unit_text(live.LOADER),
        **routers,
        "prometheus.service": _monitoring("prometheus"),
        "prometheus-alertmanager.service": _monitoring("alertmanager"),
        "containerd.service": limits,
        "docker.service": limits,
    }


UNITS = units()


def score(name, text, root):
    """Return systemd's exposure level of a unit, and what it says."""
    unit = name.partition(" ")[0].replace("NAME-N", "x-0").replace(".container", ".service")
    place = root / "etc/systemd/system"
    place.mkdir(parents=True)
    if not WHOLE.search(text) or "ExecStart=\n" in text:
        user = f"User={USERS[name]}\n" if name in USERS else ""
        (place / unit).write_text(f"[Service]\nExecStart=/bin/true\n{user}")
        (place / f"{unit}.d").mkdir()
        (place / f"{unit}.d/50-apiary.conf").write_text(text)
    elif name.endswith(".container"):
        service = text.partition("[Service]")[2]
        (place / unit).write_text(f"[Service]\nExecStart=/bin/true\n{service}")
    else:
        (place / unit).write_text(text)
    for program in ("bin/true", "usr/bin/docker", "usr/libexec/apiary/launch", "usr/sbin/nft"):
        (root / program).parent.mkdir(parents=True, exist_ok=True)
        (root / program).touch(mode=0o755)
    command = ["systemd-analyze", "security", "--no-pager", "--offline=yes", f"--root={root}", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert output, done.stdout + done.stderr
    return float(output[1]), done.stdout


def has_offline():
    if not shutil.which("systemd-analyze"):
        return False
    output = subprocess.run(
        ["systemd-analyze", "--version"], capture_output=True, text=True, check=False
    ).stdout
    return int((re.search(r"\d+", output) or "0")[0]) >= 252


def test_every_unit_that_is_written_is_here():
    found = {
        str(path.relative_to(PLUGINS))
        for path in PLUGINS.rglob("*")
        if path.suffix in (".py", ".j2", ".service", ".conf") and HEAD.search(path.read_text())
    }
    assert found == set(SOURCES)
    assert set().union(*SOURCES.values()) == set(UNITS)
    assert set(EXPOSED["entries"]) <= set(UNITS)
    assert all(len(entry["why"]) > 20 for entry in EXPOSED["entries"].values())


@pytest.mark.skipif(not has_offline(), reason="systemd-analyze of systemd 252 or later")
@pytest.mark.parametrize("name", sorted(UNITS))
def test_a_unit_scores_below_the_threshold(name, tmp_path):
    level, output = score(name, UNITS[name], tmp_path)
    if name in EXPOSED["entries"]:
        assert level <= EXPOSED["entries"][name]["most"], output
    else:
        assert level < EXPOSED["threshold"], output
