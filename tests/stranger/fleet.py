# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody new takes four bare hosts to serving and through their first days, without internet.

    python -m stranger.fleet [--json] [--keep]

Commands are the README's and those of pages that it links to; what a person brings besides is in
here. Hosts have Ubuntu, want a password of sudo, and reach nothing but each other: a file server, a
mirror, and the bastion that the controller comes through. Ends with what each step took.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import yaml

from labkit import network
from labkit.console import guarded, say

from .machine import ROOT, Machine, clone_of, quietly, start
from .readme import commands, packages

LAB = os.environ.get("APIARY_STRANGER_LAB", "strangers")
GPU_HOSTS = tuple(f"gpu-{number:03d}" for number in range(1, 5))
ROUTER, STORE, MIRROR, BASTION = "router-001", "storage-001", "storage-002", "storage-003"
MODEL = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"
REVISION = "0123456789abcdef" * 2 + "01234567"
VERSION = "0.33.0"
OLD_ROCM, NEW_ROCM = "7.1.1", "7.2.4"
PASSWORD = "correct horse"  # noqa: S105 (of hosts that live for minutes)
MINE = "/root/apiary/inventory/mine"
ENVIRONMENT = "/root/apiary-venv"
KEYS, VAULT = "/root/.ssh/known_hosts", "/root/.vault"


def page(name: str, words: str, **texts: str) -> str:
    """Return the command of a how-to page that has these words, with a person's own in place."""
    text = (ROOT / f"docs/how-to/{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    found = [line.removeprefix("$ ").split("   #")[0].strip() for line in lines if words in line]
    assert found, f"{name}.md no longer says {words!r}"
    for old, new in texts.items():
        assert old in found[0], f"{name}.md: {found[0]!r} does not have {old!r}"
        found[0] = found[0].replace(old, new)
    return found[0]


def readme(words: str) -> str:
    """Return the README's command that has these words."""
    return next(one for one in commands() if words in one)


@dataclass
class Site:
    """A lab as a site: what the machines are, and what is done outside the controller."""

    hosts: dict[str, Any] = field(default_factory=dict)

    @property
    def subnet(self) -> str:
        return str(ip_network(f"{self.address(ROUTER)}/22", strict=False))

    def address(self, host: str) -> str:
        """Return where a host is in the site's own network."""
        return str(self.hosts[host]["address_in_lab"])

    def root(self, host: str, script: str) -> str:
        """Run a script as root at a host's console."""
        return quietly(["docker", "exec", self.hosts[host]["container"], "bash", "-euc", script])

    def up(self) -> None:
        """Have the machines, as a site has them that never heard of Apiary."""
        scratch = ROOT / ".lab/site"
        python = (sys.executable, "-B")
        quietly([*python, "tests/lab/vllm_double/wheel.py", VERSION, f"{scratch}/wheels"])
        quietly([*python, "tests/lab/models.py", f"{scratch}/models", MODEL])
        self.make()
        build = "tests/lab/repository/build.py"
        quietly([*python, build, str(ROOT / ".lab/repository")])
        self.prepare("all")
        self.close()

    def make(self) -> None:
        """Make the machines that are not there."""
        numbers = ("--hosts", str(len(GPU_HOSTS)), "--routers", "1", "--storage", "3")
        quietly([sys.executable, "tests/lab/lab.py", "up", "--name", LAB, *numbers])
        self.hosts = json.loads((ROOT / ".lab" / LAB / "hosts.json").read_text())["hosts"]

    def prepare(self, limit: str) -> None:
        """Bring what the machines of a site have."""
        command = ["ansible-playbook", "-i", "inventory/lab", "tests/stranger/prepare.yml"]
        for name, value in {
            "lab_repository": ROOT / ".lab/repository",
            "site_wheels": ROOT / ".lab/site/wheels",
            "site_models": ROOT / ".lab/site/models",
        }.items():
            command += ["-e", f"{name}={value}"]
        environment = {**os.environ, "APIARY_LAB": LAB, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        done = subprocess.run(
            [*command, "--limit", limit],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        machines = self.hosts if limit == "all" else (limit,)
        for host in machines:
            self.root(
                host,
                f"echo 'ansible:{PASSWORD}' | chpasswd; "
                "echo 'ansible ALL=(ALL) ALL' > /etc/sudoers.d/ansible",
            )

    def replace(self, host: str) -> None:
        """Put another machine in a host's place: Ubuntu as installed, with keys of its own."""
        for key in (ROOT / f".lab/{LAB}/host_keys").glob(f"{host}*"):
            key.unlink()
        quietly(["docker", "rm", "--force", "--volumes", self.hosts[host]["container"]])
        network.close(self.subnet, closed=False)  # what it is installed from is outside
        self.make()
        self.prepare(host)
        network.close(self.subnet)

    def close(self) -> None:
        """Let nobody of the site's network out; the bastion alone is reached from outside."""
        network.close(self.subnet)
        bastion = self.hosts[BASTION]["container"]
        quietly(["docker", "network", "connect", "bridge", bastion])
        names = "".join(f"{self.address(one)} {one}\n" for one in self.hosts)
        self.root(BASTION, f"printf '{names}' >> /etc/hosts")

    @property
    def bastion(self) -> str:
        """Return where the bastion is reached from outside."""
        form = "{{.NetworkSettings.Networks.bridge.IPAddress}}"
        container = self.hosts[BASTION]["container"]
        return quietly(["docker", "inspect", "--format", form, container]).strip()

    def down(self) -> None:
        """Leave nothing."""
        if self.hosts:
            network.close(self.subnet, closed=False)
        quietly([sys.executable, "tests/lab/lab.py", "down", "--name", LAB])


@dataclass
class Walk:
    """A person at a controller; ``laps`` is (step, seconds) of what was done."""

    site: Site
    machine: Machine
    laps: list[tuple[str, float]] = field(default_factory=list)
    environment: str | None = None
    exported: str = ""

    def type(self, command: str, *words: str, code: int = 0) -> str:
        """Type a command; it has to end with this code and say these words."""
        begun = time.monotonic()
        say(f"$ {command}")
        done = self.machine.type(self.exported + command, self.environment)
        said = f"$ {command}\n{done.said}\nexit code {done.code}"
        assert done.code == code, said
        assert "Traceback" not in done.said, said
        lost = [word for word in words if not re.search(word, done.said)]
        assert not lost, f"did not say {lost}: {said}"
        say(f"  {time.monotonic() - begun:.0f} s")
        return done.said

    def write(self, path: str, document: Any) -> None:
        """Write a file of the inventory; a mapping goes over what is there."""
        path = f"{MINE}/{path}"
        if isinstance(document, str):
            self.machine.put(path, document)
            return
        there = self.machine.type(f"cat {path} 2>/dev/null || true").said
        merged = _merged(yaml.safe_load(there) or {}, document)
        self.machine.put(path, yaml.safe_dump(merged, sort_keys=False))

    def step(self, name: str, do: Callable[[], None]) -> None:
        """Do a step and note what it took."""
        begun = time.monotonic()
        say(f"== {name}")
        do()
        self.laps.append((name, time.monotonic() - begun))

    # From nothing to a chat completion.

    def install(self) -> None:
        """Install Apiary as the README says."""
        install = f"apt-get update -qq && apt-get install -y -qq {' '.join(packages())} curl"
        self.type(f"DEBIAN_FRONTEND=noninteractive sh -c '{install}'")
        self.type(readme("-m venv"))
        self.environment = ENVIRONMENT
        self.type(readme("pip install"))

    def reach(self) -> None:
        """Come to the hosts through the bastion, with keys that were compared."""
        self.machine.put(
            "/root/.ssh/id_ed25519", (ROOT / f".lab/{LAB}/id_ed25519").read_text(), 0o600
        )
        self.type(f"echo '{self.site.bastion} bastion.example' >> /etc/hosts")
        text = (ROOT / "docs/how-to/run-without-internet.md").read_text(encoding="utf-8")
        block = re.search(r"^```text\n(Host .*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        assert block, "run-without-internet.md no longer says what ~/.ssh/config needs"
        self.machine.put("/root/.ssh/config", block[1].replace("admin@", "ansible@"), 0o600)
        # The bastion's own key, compared with its console.
        self.type(f"ssh-keyscan -t ed25519 bastion.example 2>/dev/null >> {KEYS}")
        public = self.site.root(BASTION, "cat /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
        self.type(f"cat {KEYS}", re.escape(public))
        self.know(*GPU_HOSTS, ROUTER, STORE)

    def know(self, *hosts: str) -> None:
        """Take hosts' keys by the bastion, and compare them with the consoles."""
        names = {"admin@": "ansible@", "gpu-001 gpu-002": " ".join(hosts)}
        self.type(page("run-without-internet", "ssh-keyscan", **names))
        said = self.type(f"cat {KEYS}")
        for host in hosts:
            key = self.site.root(host, "cat /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
            assert f"{host} ssh-ed25519 {key}" in said, f"{host}: another key"

    def describe(self) -> None:
        """Write the inventory: hosts, the mirror, the weights, the engine, sudo's password."""
        self.type(readme("cp -r inventory/example"))
        for folder in ("several_models", "mi300x", "kubernetes_nodes", "monitoring"):
            self.type(f"rm -r inventory/mine/group_vars/{folder}")
        self.write("hosts.yml", yaml.safe_dump(self._hosts(), sort_keys=False))
        self.write("group_vars/gpu_hosts/rocm.yml", self._mirror())
        self.write("group_vars/gpu_hosts/weight_cache.yml", self._weights())
        self.write("group_vars/gpu_hosts/deployment.yml", self._engine())
        # A container may not have more files open.
        self.write("group_vars/routers/router.yml", {"router_connections": 4000})
        self.write("group_vars/all/ansible.yml", {"ansible_user": "ansible"})
        pins = (ROOT / f".lab/site/wheels/vllm-{VERSION}.txt").read_text()
        self.write(f"files/vllm-{VERSION}.txt", pins)
        # docs/how-to/keep-secrets.md
        self.type(page("keep-secrets", "cp inventory/example"))
        self.write("group_vars/all/vault.yml", {"vault_become_password": PASSWORD})
        named = {"ansible_become_password": "{{ vault_become_password }}"}
        self.write("group_vars/all/ansible.yml", named)
        self.machine.put(VAULT, "open sesame\n", 0o600)
        self.exported = f"export ANSIBLE_VAULT_PASSWORD_FILE={VAULT}; "
        self.type(page("keep-secrets", "ansible-vault encrypt inventory/mine").split("  ")[0])
        self.type(readme("playbooks/validate.yml").split(" #")[0], "failed=0")

    def _hosts(self) -> dict[str, Any]:
        at = {host: {"apiary_address": self.site.address(host)} for host in self.site.hosts}
        racks = {"rack1": GPU_HOSTS[:2], "rack2": GPU_HOSTS[2:]}
        return {
            "gpu_hosts": {"children": {"large_model": {"children": dict.fromkeys(racks)}}},
            **{
                rack: {"vars": {"apiary_rack": rack}, "hosts": {one: at[one] for one in hosts}}
                for rack, hosts in racks.items()
            },
            "weights_writers": {"hosts": {STORE: None}},
            "routers": {"hosts": {ROUTER: at[ROUTER]}},
        }

    def _mirror(self) -> dict[str, Any]:
        mirror = f"http://{self.site.address(MIRROR)}/mirror"
        facts = json.loads((ROOT / ".lab/repository/facts.json").read_text())
        return {
            "rocm_version": OLD_ROCM,
            "rocm_repository_url": f"{mirror}/rocm",
            "rocm_driver_repository_url": f"{mirror}/amdgpu",
            "rocm_key_url": f"{mirror}/rocm/rocm.gpg.key",
            # A lab signs its own stubs, and its hosts run this machine's kernel.
            "rocm_key_fingerprint": facts["fingerprint"],
            "rocm_driver_key_fingerprint": facts["fingerprint"],
            "rocm_allow_unsupported": True,
        }

    def _weights(self) -> dict[str, Any]:
        # No kernel here has NFS: another file system of the network, as the page says.
        options = {"_netdev": True, "ro": True, "allow_other": True, "reconnect": True}
        mount = {
            "path": "/srv/models",
            "source": f"{self.site.address(STORE)}:/export/models",
            "type": "fuse.sshfs",
            "options": {**options, "directport": 2049},
        }
        return {"weight_cache_mounts": [mount]}

    def _engine(self) -> dict[str, Any]:
        pins = page("upgrade-vllm", "lookup('ansible.builtin.file'").split(": ", 1)[1].strip('"')
        return {
            "apiary_deployment": {
                "engine": {"version": VERSION, "executable": f"/opt/vllm/{VERSION}/bin/vllm"},
                "limits": {"start_timeout_seconds": 300, "drain_timeout_seconds": 20},
            },
            "engine_requirements": {VERSION: pins},
            "engine_index_url": f"http://{self.site.address(MIRROR)}/simple",
            # Hosts of a lab have this machine's memory.
            "acceptance_memory_gib": 1,
        }

    def look(self) -> None:
        """Ask whether all is there, and what the mirror must have."""
        self.type(readme("apiary doctor"))
        listed = self.type(page("run-without-internet", "mirror list", **{}))
        say(listed)

    def publish(self) -> None:
        """Publish the weights that lie on the writer."""
        command = page("publish-weights", "playbooks/weights.yml")
        command = command.split(" -e ")[0]
        self.type(
            f"{command} -e weights_repository={MODEL} -e weights_revision={REVISION}"
            f" -e weights_source=/srv/incoming/{MODEL}",
            "failed=0",
        )

    def serve(self) -> None:
        """Take the hosts to serving."""
        self.type(readme("playbooks/plan.yml"))
        self.type(readme("playbooks/site.yml"), "gpu-004 .*failed=0", f"{ROUTER} .*failed=0")

    def settled(self) -> None:
        """See that a second run changes nothing, and that every host is right."""
        self.type(readme("playbooks/site.yml"), *(f"{one} .*changed=0 " for one in GPU_HOSTS))
        self.type(readme("playbooks/verify.yml"), *(f"{one}: accepted" for one in GPU_HOSTS))

    def ask(self) -> None:
        """Ask the router for a chat completion, from inside."""
        text = (ROOT / "docs/tutorial/first-host.md").read_text(encoding="utf-8")
        found = re.search(r"^\$ (curl --silent http://\S+/chat/completions.*)$", text, re.MULTILINE)
        assert found, "first-host.md no longer asks for a chat completion"
        self.machine.put("/root/ask.sh", found[1].replace(f"//{ROUTER}", "//localhost"))
        self.type(f"ssh {ROUTER} bash -s < /root/ask.sh", '"role": ?"assistant"')

    # The first days.

    def kernel(self) -> None:
        """Take the distribution's next kernel, with the driver built for it."""
        self.site.root(MIRROR, "cd /srv/mirror; rm -rf ubuntu; mv ubuntu-next ubuntu")
        self.type(
            page("upgrade-the-driver", "upgrade=dist"), *(f"{one} .*CHANGED" for one in GPU_HOSTS)
        )
        self.type(page("upgrade-the-driver", "dkms status"), f"{_kernel('ubuntu_next')}.*installed")
        self.type(page("upgrade-the-driver", "-e maintain_reboot=true"), "done")
        self.ask()

    def driver(self) -> None:
        """Upgrade driver and ROCm, host after host."""
        self.write("group_vars/gpu_hosts/rocm.yml", {"rocm_version": NEW_ROCM})
        self.type(page("upgrade-the-driver", "apiary rollout maintain"), "done")
        self.type(page("upgrade-the-driver", "/sys/module/amdgpu/version"), "6.16.13")
        self.ask()

    def replace(self) -> None:
        """Have another machine in a host's place."""
        host = GPU_HOSTS[-1]
        for words in (
            "playbooks/drain.yml",
            "ssh-keygen -R",
            "--limit",
            "verify.yml",
            "undrain.yml",
        ):
            if words == "ssh-keygen -R":
                self.site.replace(host)
            self.type(page("re-image-a-host", words, **{"gpu-002": host}))
            if words == "ssh-keygen -R":
                self.know(host)
        self.ask()


BARE_TO_SERVING = ("install", "reach", "describe", "look", "publish", "serve", "ask", "settled")
FIRST_DAYS = ("kernel", "driver", "replace")


def _kernel(name: str) -> str:
    stubs = yaml.safe_load((ROOT / "tests/lab/repository/stubs.yml").read_text(encoding="utf-8"))
    return str(stubs[name]["noble"])


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}


def document(laps: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Return what each step took, in seconds, and all from bare hosts to a chat completion."""
    steps = [{"step": name, "seconds": round(seconds, 1)} for name, seconds in laps]
    until = [name for name, _seconds in laps].index("ask") + 1
    serving = round(sum(seconds for _name, seconds in laps[:until]), 1)
    return {"steps": steps, "bare_to_serving_seconds": serving}


def table(laps: Sequence[tuple[str, float]]) -> str:
    """Return the same for a reader."""
    made = document(laps)
    rows = [(one["step"], one["seconds"]) for one in made["steps"]]
    rows.append(("bare to serving", made["bare_to_serving_seconds"]))
    return "\n".join(f"{name:16}{seconds:8.0f} s" for name, seconds in rows)


def run(arguments: argparse.Namespace) -> None:
    """Walk; whatever comes, leave nothing, unless it is to be kept."""
    site, name = Site(), f"apiary-stranger-fleet-{os.getpid()}"
    try:
        say("Making a site: four hosts with Ubuntu, a file server, a mirror, a bastion")
        site.up()
        with tempfile.TemporaryDirectory() as scratch:
            machine = start(name, clone_of(Path(scratch)), ())
            walk = Walk(site, machine)
            for step in (*BARE_TO_SERVING, *FIRST_DAYS):
                walk.step(step, getattr(walk, step))
        print(json.dumps(document(walk.laps), indent=2) if arguments.json else table(walk.laps))
    finally:
        if not arguments.keep:
            subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True)
            site.down()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the walk; every refusal of the lab is a finding on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with the times as JSON")
    parser.add_argument("--keep", action="store_true", help="leave the machines as they are")
    arguments = parser.parse_args(argv)
    return guarded(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
