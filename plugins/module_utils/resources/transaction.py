# SPDX-License-Identifier: GPL-3.0-or-later

"""Package work in its order: repair, hold, remove, install in stages, build, hold again.

Commands whose need shows in the evidence; a list of it is decided only where something is to do.
``packages`` tells name and version glob of what ``install`` has; a name that is not among them is
requested in any version. Each of ``optional`` is done where all its packages can be had.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from typing import Any

from ..finding import ApiaryError, Finding, error
from ..packages.managers import MAKE_LOGS, MANAGERS, TAIL, Manager, last_words, runner
from .repository import matches
from .types import REQUIRED, TEXT, Difference, Host, Resource, entries

_COMMANDS = {"type": "list", "elements": "list", "default": []}
_NAMES = {"type": "list", "elements": "str", "default": []}
NAMED_BY = "name"
OPTIONS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
    "packages": entries({"name": REQUIRED, "version": TEXT, "spec": REQUIRED}, default=[]),
    "repair": _COMMANDS,
    "enable": _COMMANDS,
    "unhold": _NAMES,
    "remove": _NAMES,
    "install": _COMMANDS,
    "dkms": _COMMANDS,
    "initramfs": _NAMES,
    "hold": _NAMES,
    "optional": entries(
        {
            "kernel": REQUIRED,
            "packages": {"type": "list", "elements": "str", "required": True},
            "dkms": _COMMANDS,
            "initramfs": {"type": "list", "elements": "str"},
        },
        default=[],
    ),
}
BUILD = re.compile(
    r"Bad return status for module build|amdgpu-dkms.{0,400}(?:exit status|post-install)"
)
UNSIGNED = re.compile(
    r"GPG check FAILED|is not signed|Signature verification failed|NO_PUBKEY|BADSIG"
    r"|Hash Sum mismatch"
)
SHOWN = 12


def inspect(host: Host, resource: Resource) -> Difference:
    manager = MANAGERS[resource["manager"]](runner(host.module))
    work = Packages(manager, resource, host.marked(_due(resource)))
    lacking = work.settle(refresh=not host.module.check_mode)
    host.installing = host.installing or bool(work.stages)
    message = "no repository has it, and its kernel may boot without the driver"
    warnings = tuple(Finding("ROCM-KERNEL-PACKAGE", package, message) for package in lacking)
    return Difference(steps=tuple(work.steps()), warnings=warnings, actual=work)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    work, due = difference.actual, _due(resource)
    if work.initramfs:
        host.mark(due, *work.initramfs)
    work.apply()
    host.settle(due)


def _due(resource: Resource) -> str:
    return f"initial ramdisks of {resource['name']}"


class Packages:
    """One run of package work; ``owed`` is the command of initial ramdisks that one left undone."""

    def __init__(self, manager: Manager, requested: Resource, owed: list[str]) -> None:
        self.manager, self.requested = manager, requested
        self.stages = [stage for stage in requested["install"] if stage]
        self.dkms, self.initramfs = requested["dkms"], requested["initramfs"] or owed
        self.refreshed = False

    def settle(self, refresh: bool) -> list[str]:
        """Take up what is optional and can be had; return the packages that can't.

        Without ``refresh``, it is what the package manager knew already that counts.
        """
        if not self.requested["optional"]:
            return []
        if refresh:
            self._must(self.manager.command("refresh"))
            self.refreshed = True
        lacking: list[str] = []
        first: list[str] = []
        for one in self.requested["optional"]:
            absent = [name for name in one["packages"] if not self.manager.versions(name)]
            lacking += absent
            if not absent:
                first += one["packages"]
                self.dkms = [*self.dkms, *one["dkms"]]
                self.initramfs = self.initramfs or one["initramfs"]
        # With the first stage: what the kernel module is built with must be there before it.
        before, *later = self.requested["install"] or [[]]
        hold = [name for name in self.requested["hold"] if name not in lacking]
        self.requested = {**self.requested, "hold": hold}
        self.stages = [stage for stage in ([*before, *first], *later) if stage]
        return lacking

    def commands(self) -> list[list[str]]:
        """Return what changes the host, in order."""
        requested, manager = self.requested, self.manager
        return [
            *requested["repair"],
            *requested["enable"],
            *self._named("unhold", "remove"),
            *(manager.command("install", stage) for stage in self.stages),
            *self.dkms,
            *([self.initramfs] if self.initramfs else []),
            *self._named("hold"),
        ]

    def _named(self, *verbs: str) -> list[list[str]]:
        """Return the commands of verbs that take the names listed under them."""
        names = {verb: self.requested[verb] for verb in verbs}
        return [self.manager.command(verb, names[verb]) for verb in verbs if names[verb]]

    def steps(self) -> list[str]:
        """Return the commands in short, without what only tells a tool how to behave."""
        return [shlex.join(self.manager.shown(argv)) for argv in self.commands()]

    def apply(self) -> None:
        """Do it all; raise ApiaryError at the first thing that can't be done."""
        requested, manager = self.requested, self.manager
        self._repair()
        for argv in requested["enable"]:
            self._must(argv)
        if self.stages and (requested["enable"] or not self.refreshed):
            self._must(manager.command("refresh"))
        # All of it is looked up before anything is removed.
        stages = [[self._offered(spec) for spec in stage] for stage in self.stages]
        for argv in self._named("unhold", "remove"):
            self._must(argv)
        for stage in stages:
            self._install(stage)
        if requested["repair"]:
            self._must_be_repaired()
        initramfs = [self.initramfs] if self.initramfs else []
        for argv in (*self.dkms, *initramfs, *self._named("hold")):
            self._must(argv)

    def _repair(self) -> str | None:
        """Finish interrupted work as far as it goes; return what stopped it, if anything did."""
        answers = [self.manager.run(argv) for argv in self.requested["repair"]]
        return next((output for code, output in answers if code != 0), None)

    def _must_be_repaired(self) -> None:
        output = self._repair()
        if output is None:
            return
        log = self._build_log(output)
        if log:
            raise log
        _before, _colon, names = output.partition("Errors were encountered while processing:")
        raise error(
            "ROCM-DPKG-BROKEN",
            " ".join(names.split()) or "dpkg",
            f"still half-configured after `{shlex.join(self.requested['repair'][0])}`",
        )

    def _install(self, stage: list[str]) -> None:
        """Install one stage; it may bring what a failing repair still lacked."""
        argv = self.manager.command("install", stage)
        if self.requested["repair"]:
            if self.manager.run(argv)[0] == 0:
                return
            self._must_be_repaired()
        self._must(argv)

    def _must(self, argv: list[str]) -> None:
        code, output = self.manager.run(argv)
        if code:
            raise self._failed(argv, output)

    def _offered(self, spec: str) -> str:
        """Return how to ask for a package that the repositories have; refuse where none has."""
        known = {one["spec"]: (one["name"], one["version"]) for one in self.requested["packages"]}
        name, version = known.get(spec, (spec, None))
        offered = self.manager.versions(name)
        fitting = [one for one in offered if matches(one, version)]
        if fitting:
            return self.manager.exact(spec, name, fitting[0]) if version else spec
        if offered:
            raise error(
                "ROCM-PACKAGE-VERSION",
                name,
                f"found {', '.join(offered[:SHOWN])}, expected {version}",
            )
        raise error(
            "ROCM-PACKAGE-MISSING", name, "no repository of the host has a package of this name"
        )

    def _failed(self, argv: list[str], output: str) -> ApiaryError:
        """Return what a failed command means."""
        subject = shlex.join(
            argv[:1] + [word for word in argv[1:] if not word.startswith("-")][-3:]
        )
        unsigned = UNSIGNED.search(output)
        code = "ROCM-REPOSITORY-SIGNATURE" if unsigned else "ROCM-PACKAGE-MANAGER"
        return self._build_log(output) or error(code, subject, last_words(output))

    def _build_log(self, output: str) -> ApiaryError | None:
        """Return the last output of the compiler, where a build of the driver is what failed."""
        log = newest_log() if BUILD.search(output) else None
        if log is None:
            return None
        path, lines = log
        return error(
            "ROCM-DKMS-BUILD",
            "amdgpu",
            f"the kernel module does not build; the end of {path} is:\n{lines}",
        )


def newest_log() -> tuple[str, str] | None:
    """Return path and last lines of the youngest make.log of the driver."""
    logs = glob.glob(MAKE_LOGS + "/*/build/make.log") + glob.glob(MAKE_LOGS + "/*/*/*/log/make.log")
    if not logs:
        return None
    path = max(logs, key=os.path.getmtime)
    with open(path, encoding="utf-8", errors="replace") as stream:
        lines = stream.read().splitlines()[-TAIL:]
    return path, "\n".join("    " + line for line in lines)
