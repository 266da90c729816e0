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
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from docs.lab import Lab
from docs.page import Drop, Hands, Merge, Run, edit, missing, steps
from loss.fleet import ROOT, Fleet, await_true

# What a reader's own terminal has: the lines of a page are no wider than 120.
TERMINAL = {"COLUMNS": "200", "TERM": "dumb", "ANSIBLE_NOCOLOR": "1"}
NOT_THEIRS = {"inventory", "artifacts", ".lab", ".git", ".venv", ".ansible"}
SSH = """Host gpu-* router-*
  User ansible
  IdentityFile {identity}
  IdentitiesOnly yes
"""


@dataclass
class Reader:
    """One reader; ``told`` is (page, line, command, seconds) of all that was run."""

    lab: Lab
    desk: Path
    told: list[tuple[str, int, str, float]] = field(default_factory=list)

    @property
    def fleet(self) -> Fleet:
        return self.lab.fleet

    @property
    def work(self) -> Path:
        return self.desk / "apiary"

    @property
    def ssh(self) -> Path:
        return self.desk / "ssh"

    def sit_down(self) -> None:
        """Make the desk: the checkout, ~/.ssh, and the names of the lab's hosts."""
        self.work.mkdir(parents=True)
        for entry in ROOT.iterdir():
            if entry.name not in NOT_THEIRS:
                (self.work / entry.name).symlink_to(entry)
        (self.work / "inventory").mkdir()
        (self.work / "inventory/example").symlink_to(ROOT / "inventory/example")
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

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run what is typed; the program's own output and errors come as one."""
        ssh = Path.home() / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        bind = f"mount --bind {shlex.quote(str(self.ssh))} {shlex.quote(str(ssh))}"
        names = f"mount --bind {shlex.quote(str(self.desk / 'hosts'))} /etc/hosts"
        environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")},
            **TERMINAL,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            # Others have hosts of these names, too.
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.desk / "cp"),
        }
        return subprocess.run(
            ["unshare", "--mount", "bash", "-euc", f"{bind}\n{names}\n{script}"],
            cwd=self.work,
            env=environment,
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
            where = f"{page.name}:{step.line}"
            if isinstance(step, Merge | Drop):
                edit(self.work, step)
            elif isinstance(step, Hands):
                self.hands(*step.words)
            else:
                self._type(page.name, where, step)

    def _type(self, page: str, where: str, step: Run) -> None:
        begun = time.monotonic()
        done = self.run(step.command)
        self.told.append((page, step.line, step.command, time.monotonic() - begun))
        said = f"{where}: $ {step.command}\n{done.stdout}"
        assert (done.returncode != 0) == step.fails, f"exit code {done.returncode}: {said}"
        lost = missing(step.prints, done.stdout)
        assert lost is None, f"did not say {lost!r}: {said}"

    def hands(self, action: str, host: str, *words: str) -> None:
        """Do what no command does: power, a new GPU, a new system disk."""
        getattr(self, f"_{action}")(host, *words)

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
