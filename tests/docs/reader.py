# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody who does what pages say, to the letter, at a desk of their own.

The desk is a directory that looks like the checkout, with an inventory/ of its own. Host names and
~/.ssh are of a mount namespace: what a page says of them holds, and nobody else's is touched.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from docs.lab import Lab
from docs.page import Drop, File, Hands, Merge, Run, Skip, edit, missing, steps
from loss.fleet import ROOT, Fleet, await_true

# What a reader's own terminal has: the lines of a page are no wider than 120.
TERMINAL = {"COLUMNS": "200", "TERM": "dumb", "ANSIBLE_NOCOLOR": "1", "EDITOR": "true"}
# A reader has set nothing of these.
OURS = ("ANSIBLE_", "APIARY_", "MOLECULE_")
NOT_THEIRS = {"inventory", "artifacts", "dist", ".lab", ".git", ".ansible"}
SSH = """Host gpu-* router-* monitor-*
  User ansible
  IdentityFile {identity}
  IdentitiesOnly yes
"""


@dataclass
class Desk:
    """A place without hosts; ``told`` is (page, line, command, seconds) of all that was run."""

    desk: Path
    told: list[tuple[str, int, str, float]] = field(default_factory=list)

    @property
    def work(self) -> Path:
        return self.desk / "apiary"

    def sit_down(self) -> None:
        """Make the desk: the checkout, with an inventory/ and a .lab/ that are nobody else's."""
        self.work.mkdir(parents=True)
        for entry in ROOT.iterdir():
            if entry.name not in NOT_THEIRS:
                (self.work / entry.name).symlink_to(entry)
        for part in ("example", "lab"):
            shutil.copytree(ROOT / "inventory" / part, self.work / "inventory" / part)

    @property
    def environment(self) -> dict[str, str]:
        """Return what programs find in their environment."""
        theirs = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
        return {
            **theirs,
            **TERMINAL,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "APIARY_LAB_DIR": str(self.work / ".lab"),
        }

    def argv(self, script: str) -> list[str]:
        """Return the program that does what is typed."""
        return ["bash", "-euc", script]

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run what is typed; the program's own output and errors come as one."""
        return subprocess.run(
            self.argv(script),
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=1800,
            check=False,
        )

    def follow(self, page: Path) -> None:
        """Do what a page says; AssertionError tells the line that does not come true."""
        for step in steps(page.read_text(encoding="utf-8")):
            if isinstance(step, Merge | Drop | File):
                edit(self.work, step)
            elif isinstance(step, Hands):
                self.hands(*step.words)
            elif isinstance(step, Run):
                self._type(page.name, f"{page.name}:{step.line}", step)
            else:
                assert isinstance(step, Skip)

    def _type(self, page: str, where: str, step: Run) -> None:
        command = step.command
        if step.host:
            typed = f"sudo bash -euc {shlex.quote(command)}"
            command = f"ssh {step.host} {shlex.quote(typed)}"
        begun = time.monotonic()
        done = self.run(command)
        self.told.append((page, step.line, step.command, time.monotonic() - begun))
        said = f"{where}: $ {command}\n{done.stdout}"
        assert (done.returncode != 0) == step.fails, f"exit code {done.returncode}: {said}"
        lost = missing(step.prints, done.stdout)
        assert lost is None, f"did not say {lost!r}: {said}"

    def hands(self, action: str, host: str, *words: str) -> None:
        """Do what no command does; there are no hosts here."""
        raise AssertionError(f"no host {host} to be {action}")


@dataclass
class Reader(Desk):
    """Somebody who has the hosts of a lab."""

    lab: Lab = field(kw_only=True)

    @property
    def fleet(self) -> Fleet:
        return self.lab.fleet

    @property
    def ssh(self) -> Path:
        return self.desk / "ssh"

    def sit_down(self) -> None:
        """Make the desk, ~/.ssh, and the names of the lab's hosts."""
        super().sit_down()
        self.ssh.mkdir(mode=0o700)
        identity = self.ssh / "id_ed25519"
        identity.write_bytes((self.fleet.directory / "id_ed25519").read_bytes())
        identity.chmod(0o600)
        (self.ssh / "config").write_text(SSH.format(identity="~/.ssh/id_ed25519"))
        (self.desk / "hosts").write_text(Path("/etc/hosts").read_text() + self.lab.names())

    def know(self, *hosts: str) -> None:
        """Trust the SSH keys that hosts have now."""
        keys = self.run(f"ssh-keyscan -t ed25519 {' '.join(hosts)} 2>/dev/null")
        with (self.ssh / "known_hosts").open("a") as known:
            known.write(keys.stdout)

    @property
    def environment(self) -> dict[str, str]:
        # Others have hosts of these names, too.
        return {**super().environment, "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.desk / "cp")}

    def argv(self, script: str) -> list[str]:
        ssh = Path.home() / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        bind = f"mount --bind {shlex.quote(str(self.ssh))} {shlex.quote(str(ssh))}"
        names = f"mount --bind {shlex.quote(str(self.desk / 'hosts'))} /etc/hosts"
        return ["unshare", "--mount", "bash", "-euc", f"{bind}\n{names}\n{script}"]

    def hands(self, action: str, host: str, *words: str) -> None:
        """Do what no command does: power, a new GPU, a new system disk; and what a lab needs."""
        getattr(self, f"_{action}")(host, *words)

    def _key(self, host: str) -> None:
        self.know(host)

    def _settings(self, _host: str) -> None:
        self.lab.settle(self.work)

    def _hub(self, writer: str) -> None:
        self.lab.publish(self.work, writer)

    def _mounts(self, host: str, what: str) -> None:
        """Mount, or no longer, what the writer published."""
        if what == "published":
            self.lab.mount(self.work)
        else:
            self.lab.unmount(self.work)

    def _mirror(self, host: str) -> None:
        self.lab.mirror(host)

    def _unmirror(self, _host: str) -> None:
        self.lab.unmirror()

    def _watcher(self, host: str) -> None:
        self.know(host)
        self.lab.watch(self.work, host)

    def _nodes(self, second: str) -> None:
        """Have gpu-001 and a second host serve one replica together, and nothing else."""
        self.know(second)
        self.lab.share(self.work, second)

    def _off(self, host: str) -> None:
        # `--restart=always` has Docker boot it again, unless it was stopped by hand.
        self.fleet.docker("stop", host)

    def _on(self, host: str) -> None:
        self.fleet.docker("start", host)
        self._answers(host)

    def _gpu(self, host: str, number: str) -> None:
        """Put another GPU into the slot: the address stays, its serial numbers are new."""
        bdf = self.fleet.run(host, "ls -d /sys/bus/pci/drivers/amdgpu/0000:*/ | sort").splitlines()[
            int(number)
        ]
        new = "b00dcafe0badf00d"
        old = self.fleet.run(host, f"cat {bdf}unique_id").strip()
        self.fleet.run(
            host,
            f"echo {new} > {bdf}unique_id; echo 692442099999 > {bdf}serial_number; "
            "for one in /sys/class/kfd/kfd/topology/nodes/*/properties; do "
            f"sed 's/^unique_id {int(old, 16)}$/unique_id {int(new, 16)}/' $one > /run/new && "
            "cat /run/new > $one; done",
        )

    def _image(self, host: str) -> None:
        """Make the host anew, as its image has it: nothing of Apiary, another SSH key."""
        keys = self.fleet.directory / "host_keys"
        for path in (keys / host, keys / f"{host}.pub"):
            path.unlink()
        container = self.fleet.hosts[host]["container"]
        subprocess.run(
            ["docker", "rm", "--force", "--volumes", container], capture_output=True, check=True
        )
        self.lab.up()
        self._answers(host)

    def _answers(self, host: str) -> None:
        await_true(
            lambda: self.run(f"ssh-keyscan -T 2 {host} 2>/dev/null | grep -q .").returncode == 0,
            60,
            f"{host} answers",
        )
