# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Name the winner and the change that makes it the deployment: the adapter to plugin_utils.tune."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from ansible.plugins.action import ActionBase

from ..plugin_utils.adapters import refused
from ..plugin_utils.documents import to_document
from ..plugin_utils.files import write_text
from ..plugin_utils.findings import ApiaryError, error
from ..plugin_utils.tune import candidates
from ..plugin_utils.tune.summary import summary
from ..plugin_utils.tune.types import Tune
from ..plugin_utils.tune.variables import winner_diff
from .tune_next import let_go, read_state


class _Loader(yaml.SafeLoader):
    """Reads what Ansible reads: a value with a tag of its own is none of ours."""


_Loader.add_multi_constructor("!", lambda *_: None)


def defines(path: Path, name: str) -> bool:
    """Say whether a file of variables has the deployment of this name."""
    try:
        document: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506
    except (OSError, ValueError, yaml.YAMLError):
        return False
    if not isinstance(document, dict):
        return False
    several = document.get("apiary_deployments")
    asked = [document.get("apiary_deployment"), *(several if isinstance(several, list) else ())]
    return any(isinstance(one, dict) and one.get("name") == name for one in asked)


def variable_files(directories: list[str]) -> Iterator[Path]:
    """Yield the files of variables beside an inventory or a playbook."""
    for directory in dict.fromkeys(map(Path, directories)):
        for kind in ("group_vars", "host_vars"):
            found = sorted((directory / kind).rglob("*"))
            yield from (path for path in found if path.suffix in (".yml", ".yaml", ".json", ""))


def the_file(given: str | None, directories: list[str], name: str) -> Path:
    """Return the one file that has the deployment; raises TRIAL-FILE where it is not one."""
    if given:
        return Path(given).absolute()
    found = [path for path in variable_files(directories) if path.is_file() and defines(path, name)]
    if len(found) != 1:
        where = ", ".join(map(str, found)) or "none below " + ", ".join(directories)
        raise error(
            "TRIAL-FILE",
            name,
            f"one file of variables was expected that defines it, and there is: {where}",
            "name it: -e tune_file=PATH",
        )
    return found[0]


def shown(path: Path) -> str:
    """Return a path as people write it who stand where the run was started."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def change_of(state: Tune, path: Path, evidence: Path) -> tuple[str, str]:
    """Return the file's new text and the difference; both empty where nothing is to change."""
    winner = winner_of(state)
    if winner is None:
        return "", ""
    changes = state.candidate(winner).changes
    name = state.asked.deployment.name
    return winner_diff(exact_text(path), shown(path), name, changes, shown(evidence))


def exact_text(path: Path) -> str:
    """Return a file's text with its own line ends; raises TRIAL-FILE where it is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as failure:
        raise _unusable(path, f"cannot be read: {failure.strerror or failure}") from None
    except UnicodeDecodeError as failure:
        raise _unusable(path, f"is not UTF-8 at byte {failure.start}") from None


def rewrite(path: Path, text: str) -> None:
    """Replace a file's text in one step; mode, owner and line ends stay as they were.

    Raises TRIAL-FILE where that is not possible; the file is then as it was.
    """
    path = Path(os.path.realpath(path))
    temporary = ""
    try:
        was = path.stat()
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".apiary-")
        with os.fdopen(handle, "wb") as stream:
            stream.write(text.encode("utf-8"))
            now = os.fstat(stream.fileno())
            if (now.st_uid, now.st_gid) != (was.st_uid, was.st_gid):
                os.fchown(stream.fileno(), was.st_uid, was.st_gid)
            os.fchmod(stream.fileno(), stat.S_IMODE(was.st_mode))
        os.replace(temporary, path)
    except OSError as failure:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        told = failure.strerror or failure
        raise _unusable(path, f"cannot be written with its owner and mode: {told}") from None


def _unusable(path: Path, problem: str) -> ApiaryError:
    return error("TRIAL-FILE", str(path), problem, "apply the winner's change by hand")


def winner_of(state: Tune) -> str | None:
    """Return the candidate that is to replace the current configuration, if one is."""
    chosen, current = state.choice.candidate if state.choice else None, state.current
    return None if current is not None and chosen == current.id else chosen


class ActionModule(ActionBase):
    """The tune_end action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Write the difference beside the state; apply it only where asked."""
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            {
                "state": {"type": "path", "required": True},
                "file": {"type": "path"},
                "directories": {"type": "list", "elements": "path", "default": []},
                "write": {"type": "bool", "default": False},
            }
        )
        place = Path(arguments["state"]).absolute()
        patch = place.with_name("winner.diff")
        text = diff = ""
        apply: str | None = None
        changed, findings = False, []
        try:
            state = read_state(str(place))
            name = state.asked.deployment.name
            if state.choice is not None and not self._task.check_mode:
                try:
                    path = the_file(arguments["file"], arguments["directories"], name)
                    text, diff = change_of(state, path, place)
                except ApiaryError as refusal:
                    # What was measured holds, whoever writes it down.
                    if arguments["write"]:
                        raise
                    findings = list(refusal.findings)
                if diff:
                    write_text(patch, diff)
                    # With the file named, patch does not care which path the difference has.
                    apply = shlex.join(["patch", shown(path), shown(patch)])
                if diff and arguments["write"]:
                    rewrite(path, text)
                    changed = True
            if not self._task.check_mode:
                let_go(place)
        except ApiaryError as refusal:
            raise refused(refusal) from None
        winner = winner_of(state)
        return {
            "changed": changed,
            "done": state.choice is not None,
            "choice": to_document(state.choice),
            "winner": to_document(candidates.deployment_of(state, winner)) if winner else None,
            "hosts": [one.name for one in state.hosts if one.used],
            "diff_file": str(patch) if diff else None,
            "apply": apply,
            "summary": [*summary(state), *map(str, findings)],
            **({"diff": {"prepared": diff}} if diff else {}),
        }
