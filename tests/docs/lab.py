# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts that pages are followed on, and what a lab's inventory says besides a reader's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from docs.page import Drop, Merge, edit
from labkit import network
from loss.fleet import ROOT, Fleet

VERSIONS = ("0.32.0", "0.33.0")
MODELS = ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen/Qwen3-VL-235B-A22B-Instruct")
VARIABLES = "inventory/mine/group_vars"
TWO_HOSTS = {"tensor_parallel_size": 8, "pipeline_parallel_size": 2, "nodes": 2}
# What hosts of the lab are called on the pages, where that is not their own name.
NAMES = {"router-002": "monitor-001"}
HUB = "http://127.0.0.1:9000"


@dataclass(frozen=True)
class Lab:
    """A lab whose hosts have two versions of the double, two models, AMD's packages as stubs."""

    fleet: Fleet
    scratch: Path
    hosts: int = 2
    routers: int = 2

    def up(self) -> None:
        """Have the hosts be there; those that are missing are made, as their image has them."""
        engines, models = self.scratch / "opt", self.scratch / "models"
        for version in VERSIONS:
            _python("tests/lab/vllm_double/build.py", version, str(engines / version))
        _python("tests/lab/models.py", str(self.scratch / "known"), *MODELS)
        for name in MODELS:
            # As playbooks/weights.yml publishes them: `current` is the revision that is served.
            place = models / name / "current"
            place.mkdir(parents=True, exist_ok=True)
            known = self.scratch / "known" / name / "config.json"
            (place / "config.json").write_bytes(known.read_bytes())
        _python(
            *("tests/lab/lab.py", "up", "--name", self.fleet.lab),
            *("--hosts", str(self.hosts), "--routers", str(self.routers)),
            *("--engine-dir", str(engines), "--models-dir", str(models)),
        )
        _playbook(self.fleet.lab, "tests/lab/repository/install.yml")
        for host in self.fleet.hosts:
            self.fleet.run(
                host, f"grep -q ' gpu-001$' /etc/hosts || echo '{self.names()}' >> /etc/hosts"
            )

    def names(self) -> str:
        """Return the lines of /etc/hosts that name the hosts."""
        return "".join(
            f"{one['address_in_lab']} {NAMES.get(name, name)}\n"
            for name, one in self.fleet.hosts.items()
        )

    def watch(self, work: Path, watcher: str) -> None:
        """Have hosts' exporters be reached in the lab, and nobody outside be called."""
        addresses = {
            name: one["address_in_lab"]
            for host, one in self.fleet.hosts.items()
            if (name := NAMES.get(host, host)) in ("gpu-001", "router-001", watcher)
        }
        for name, address in addresses.items():
            path = f"inventory/mine/host_vars/{name}.yml"
            edit(work, Merge(0, path, {"apiary_address": address}))
        nobody = {"kind": "webhook", "url": "http://127.0.0.1:9/"}
        called = {
            "monitoring_receivers": [{"name": name, **nobody} for name in ("on-call", "team")]
        }
        path = f"inventory/mine/host_vars/{watcher}.yml"
        edit(work, Merge(0, path, {**called, "monitoring_secrets": {}}))

    def settle(self, work: Path) -> None:
        """Have inventory/mine say what a lab needs besides, which no reader has to know."""
        deployment = {"limits": {"start_timeout_seconds": 300, "drain_timeout_seconds": 20}}
        # The reader's own machine measures replicas directly.
        gateway = str(ip_network(self.subnet)[1])
        for path, values in {
            f"{VARIABLES}/gpu_hosts/lab.yml": {**_settings(), "replicas_reach_from": [gateway]},
            f"{VARIABLES}/gpu_hosts/rocm.yml": {"rocm_version": "7.1.1"},
            f"{VARIABLES}/gpu_hosts/deployment.yml": {"apiary_deployment": deployment},
            f"{VARIABLES}/routers/lab.yml": {"router_connections": 4000},
        }.items():
            edit(work, Merge(0, path, values))

    @property
    def subnet(self) -> str:
        address = next(iter(self.fleet.hosts.values()))["address_in_lab"]
        return str(ip_network(f"{address}/22", strict=False))

    def mirror(self, host: str) -> None:
        """Have a host be the mirror that hosts reach, and nothing else."""
        container = self.fleet.hosts[host]["container"]
        copied = ["docker", "cp", str(ROOT / ".lab/repository/mirror"), f"{container}:/srv"]
        subprocess.run(copied, capture_output=True, check=True)
        serve = "python3 -m http.server --directory /srv/mirror 80"
        self.fleet.run(host, f"systemctl is-active -q mirror || systemd-run -u mirror {serve}")
        line = f"{self.fleet.hosts[host]['address_in_lab']} mirror.example"
        for one in self.fleet.hosts:
            self.fleet.run(one, f"grep -q mirror.example /etc/hosts || echo {line} >> /etc/hosts")
        network.close(self.subnet)

    def unmirror(self) -> None:
        """Let hosts out again."""
        network.close(self.subnet, closed=False)

    def publish(self, work: Path, writer: str) -> None:
        """Have a host be the writer of weights, with a hub that it can reach."""
        hub = (ROOT / "tests/lab/hub/hub_double.py").read_text(encoding="utf-8")
        self.fleet.run(
            writer,
            f"mkdir -p /opt/hub; cat > /opt/hub/hub.py <<'HUB'\n{hub}\nHUB\n"
            "systemctl is-active --quiet hub-double || "
            "systemd-run --unit=hub-double python3 /opt/hub/hub.py --port=9000",
        )
        settings = {"weights_endpoint": HUB, "weights_reserve_bytes": 1048576}
        edit(work, Merge(0, f"{VARIABLES}/weights_writers/lab.yml", settings))
        group = {"weights_writers": {"hosts": {writer: None}}}
        edit(work, Merge(0, "inventory/mine/hosts.yml", group))

    def mount(self, work: Path) -> None:
        """Have hosts use what was published, which lies on the writer itself."""
        cache = {
            "weight_cache_mounts": [{"path": "/export/models", "type": "local"}],
            "weight_cache_models": ["/export/models/apiary-lab/tiny/current"],
        }
        edit(work, Merge(0, f"{VARIABLES}/gpu_hosts/weight_cache.yml", cache))

    def share(self, work: Path, second: str) -> None:
        """Have inventory/mine ask for one replica over two hosts, in place of what is there."""
        addresses = {
            name: {"apiary_address": one["address_in_lab"], "apiary_interface": "eth0"}
            for name, one in self.fleet.hosts.items()
            if name in ("gpu-001", second)
        }
        group = {"gpu_hosts": {"hosts": addresses}, "rack2": {"hosts": {second: None}}}
        edit(work, Merge(0, "inventory/mine/hosts.yml", group))
        layout = {**TWO_HOSTS, "expert_parallel": True}
        asked = {"apiary_deployment": {"name": "large", "layout": layout}}
        path = f"{VARIABLES}/gpu_hosts/deployment.yml"
        edit(work, Drop(0, path, ("apiary_deployment", "layout")))
        edit(work, Merge(0, path, asked))
        freed = {"apiary_remove_other_deployments": True, "replicas_restart": True}
        edit(work, Merge(0, f"{VARIABLES}/gpu_hosts/lab.yml", freed))

    def unmount(self, work: Path) -> None:
        """Have the weights lie on the hosts' own disks, as in the tutorial."""
        cache = {"weight_cache_mounts": [], "weight_cache_models": []}
        edit(work, Merge(0, f"{VARIABLES}/gpu_hosts/weight_cache.yml", cache))


def _settings() -> dict[str, Any]:
    """Return what a host of the lab needs besides (inventory/lab/group_vars/all)."""
    facts = json.loads((ROOT / ".lab/repository/facts.json").read_text())
    mirror = "file:///opt/lab-repository/mirror"
    return {
        "rocm_repository_url": f"{mirror}/rocm",
        "rocm_driver_repository_url": f"{mirror}/amdgpu",
        "rocm_key_url": f"{mirror}/rocm/rocm.gpg.key",
        "rocm_driver_key_url": f"{mirror}/rocm/rocm.gpg.key",
        "rocm_key_fingerprint": facts["fingerprint"],
        "rocm_driver_key_fingerprint": facts["fingerprint"],
        "rocm_allow_unsupported": True,
        "acceptance_memory_gib": 1,
    }


def _python(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _playbook(lab: str, playbook: str) -> None:
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("-i", "inventory/lab", playbook),
            *("-e", f"lab_repository={ROOT / '.lab/repository'}"),
        ],
        cwd=ROOT,
        env={**os.environ, "APIARY_LAB": lab, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
