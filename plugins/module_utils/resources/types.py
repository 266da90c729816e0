# SPDX-License-Identifier: GPL-3.0-or-later

"""What every kind of resource is: its options, how it is inspected, and how it is applied."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..durable import sync_directory
from ..finding import Finding, error

Resource = dict[str, Any]
DUE = "/var/lib/apiary/due"
PROPERTIES = "ActiveState,UnitFileState,NeedDaemonReload,LoadState"
UNITS = "/etc/systemd/system"
LINKS = (UNITS, f"{UNITS}/*.wants", f"{UNITS}/*.requires")
UNIT_FOLDERS = ("/etc/systemd/", "/run/systemd/", "/usr/lib/systemd/", "/etc/containers/systemd/")


# Of argument specifications.
TEXT = {"type": "str"}
REQUIRED = {"type": "str", "required": True}
PATH = {"type": "path", "required": True}


def entries(options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the argument specification of a list of mappings with these options."""
    return {"type": "list", "elements": "dict", "options": options, **more}


@dataclass(frozen=True)
class Difference:
    """How a host differs from one resource; with neither diff nor steps it does not.

    ``diff`` are Ansible's entries, ``steps`` what is done in words where there is no text to
    compare. ``refusals`` keep it from being applied (or raise ``error``), ``warnings`` don't.
    ``actual`` is what apply needs of what inspect read, ``result`` what the module returns of it
    as data.
    """

    diff: tuple[dict[str, str], ...] = ()
    steps: tuple[str, ...] = ()
    refusals: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    actual: Any = None
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        return bool(self.diff or self.steps)


@dataclass
class Host:
    """What the kinds share while a list is inspected or applied.

    ``pending`` has the texts of files that resources earlier in the list write (None: remove), and
    ``installing`` says that packages come earlier: a service whose unit is not there yet is then no
    unknown unit. ``changed`` are the names of the earlier resources that differ. ``applying`` says
    that this is the second pass, in which what came earlier is done.
    """

    module: AnsibleModule
    secrets: Mapping[str, str] = field(default_factory=dict)
    pending: dict[str, str | None] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    changed_roles: set[str] = field(default_factory=set)
    role: str = ""
    applying: bool = False
    installing: bool = False
    reload_due: bool = False
    warnings: list[Finding] = field(default_factory=list)
    # What needs no second proof in the second pass.
    memo: set[str] = field(default_factory=set)
    reload_marks: list[str] = field(default_factory=list)

    def run(self, argv: list[str], **options: Any) -> tuple[int, str, str]:
        """Run a command; one that can't be started refuses the resource."""
        try:
            code, out, err = self.module.run_command(argv, handle_exceptions=False, **options)
        except OSError as failure:
            raise error("HOST-COMMAND", argv[0], f"cannot be started: {failure.strerror}") from None
        return code, out, err

    def systemctl(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and output of systemctl, with errors where it failed."""
        code, out, err = self.run(["systemctl", "--no-ask-password", *arguments])
        if arguments[0] in ("enable", "disable"):
            # systemctl does not sync its links, and without them nothing starts after a power cut.
            for folder in (path for pattern in LINKS for path in glob.glob(pattern)):
                with contextlib.suppress(OSError):
                    sync_directory(folder)
        return code, out if code == 0 else out + err

    def properties(self, unit: str) -> dict[str, str]:
        """Return what systemd reports of a unit."""
        _code, output = self.systemctl("show", f"--property={PROPERTIES}", "--", unit)
        return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)

    @property
    def differs_earlier(self) -> bool:
        """Return whether something earlier in the same role is still to be done."""
        return not self.applying and self.role in self.changed_roles

    def warn(self, warning: Finding) -> None:
        """Report a finding about what apply met."""
        self.warnings.append(warning)

    def unit_is_pending(self, unit: str) -> bool:
        """Return whether an earlier resource of the list brings this unit."""
        written = (path for path, text in self.pending.items() if text is not None)
        return self.installing or any(os.path.basename(path) == unit for path in written)

    def note(self, path: str, text: str | None) -> None:
        """Note that a file is, or would be, written or removed."""
        self.pending[path] = text
        if path.startswith(UNIT_FOLDERS):
            self.reload_due = True

    def reload(self) -> None:
        """Let systemd read the units that were written; nothing where none was."""
        if self.reload_due:
            code, output = self.systemctl("daemon-reload")
            if code:
                message = f"daemon-reload failed: {output.strip()}"
                raise error("HOST-UNIT", "systemd", message)
            self.reload_due = False
        for mark in self.reload_marks:
            self.settle(mark)
        self.reload_marks = []

    def mark(self, due: str, *names: str) -> None:
        """Record that something is due, and for what, before the change that makes it so."""
        path = due_path(due)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write("".join(f"{line}\n" for line in (due, *names)))

    def marked(self, due: str) -> list[str]:
        """Return for what it is due."""
        if not self.is_due(due):
            return []
        with open(due_path(due), encoding="utf-8") as stream:
            return stream.read().splitlines()[1:]

    def is_due(self, due: str) -> bool:
        """Return whether a run that ended in between has left this undone."""
        return os.path.exists(due_path(due))

    def settle(self, due: str) -> None:
        """Record that it is done."""
        if self.is_due(due):
            os.unlink(due_path(due))

    def is_triggered(self, due: str, after: list[str] | None) -> bool:
        """Return whether a resource of ``after`` differs now, or did in a run that was cut off."""
        return bool(set(after or ()) & self.changed) or self.is_due(due)


def diff_entry(path: str, before: str, after: str) -> dict[str, str]:
    """Return Ansible's diff entry of a file."""
    return {"before_header": path, "after_header": path, "before": before, "after": after}


def due_path(due: str) -> str:
    """Return the file that records that something is due."""
    return os.path.join(DUE, hashlib.sha256(due.encode()).hexdigest()[:16])
