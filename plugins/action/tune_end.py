# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Name the winner of a tuning and write it as variables: the adapter to plugin_utils.tune."""

from __future__ import annotations

from pathlib import Path

from ansible.utils.display import Display

from ..plugin_utils.adapters import Deciding
from ..plugin_utils.documents import to_document
from ..plugin_utils.files import write_text
from ..plugin_utils.findings import error
from ..plugin_utils.tune import candidates
from ..plugin_utils.tune.summary import summary
from ..plugin_utils.tune.types import Tune
from ..plugin_utils.tune.variables import tuned_variables
from .tune_next import read_state, release

DISPLAY = Display()


def shown(path: Path) -> str:
    """Return a path as people write it who stand where the run was started."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def winner_of(state: Tune) -> str | None:
    """Return the candidate that is to replace the current configuration, if one is."""
    chosen, current = state.choice.candidate if state.choice else None, state.current
    return None if current is not None and chosen == current.id else chosen


def variables_of(state: Tune, evidence: Path) -> tuple[str, str]:
    """Return the text of `tuned.yml` and the difference; both empty where nothing is to change."""
    winner = winner_of(state)
    if winner is None:
        return "", ""
    after = candidates.deployment_of(state, winner)
    return tuned_variables(state.requested.deployment, after, shown(evidence))


class ActionModule(Deciding):
    """The tune_end action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Write the winner beside the state, show what it changes; refuse an unfinished tuning."""
        path = Path(arguments["state"]).absolute()
        file = path.with_name("tuned.yml")
        state = read_state(str(path))
        text, diff = variables_of(state, path)
        if not self._task.check_mode:
            if text:
                write_text(file, text)
            release(path)
        lines = [*summary(state), *diff.splitlines()]
        if text:
            lines.append(f"to be reviewed: {shown(file)} is the deployment with these changes")
        lines += filter(None, [arguments["report"]])
        for line in lines:
            DISPLAY.display(f"  {line}")
        if state.choice is None:
            raise error("TRIAL-OPEN", state.requested.deployment.name, "not all was measured")
        winner = winner_of(state)
        used = {host.name for host in state.hosts if host.used}
        serve = to_document(candidates.deployment_of(state, winner)) if winner else None
        return {
            "choice": to_document(state.choice),
            "winner": serve,
            # Of other hosts nothing was shown.
            "target": ",".join(name for name in arguments["hosts"] if name in used),
            "serve": serve if arguments["serve"] else None,
            "tuned_file": str(file) if text else None,
            "summary": lines,
        }
