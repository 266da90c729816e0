# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask the hosts for a support bundle, some at a time, so that their texts fill no memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from apiary.app.runner import run_playbook
from apiary.help.bundle.sources import of_host
from apiary.help.bundle.types import BundleHost, LeftOut, Options, Raw

TOGETHER = 16
_LAST = "Save them for the command"


def ask_hosts(
    options: Options,
    names: Sequence[str],
    work: Path,
    step: Callable[[], None],
    know: Callable[[Sequence[str]], None],
) -> Iterator[BundleHost | Raw | LeftOut]:
    """Yield each host with how it answered, and the files of those that did; raise FLEET-PROMPT.

    ``know`` is told the secrets that lie on the hosts.
    """
    for at in range(0, len(names), TOGETHER):
        some = list(names[at : at + TOGETHER])
        directory = work / f"answers-{at}"
        directory.mkdir(mode=0o700)
        ended = run_playbook(
            "bundle",
            inventory=options.sources,
            extra_vars={
                "bundle_hosts": some,
                "bundle_dest": str(directory),
                "bundle_since": options.since,
                "bundle_lines": options.lines,
                "bundle_total_bytes": options.host_bytes,
            },
            artifacts=work / f"run-{at}",
            vault_password_files=options.vault,
            on_event=_counter(step),
        )
        answered = set()
        for path in sorted(directory.iterdir()):
            answer: dict[str, Any] = json.loads(path.read_bytes())
            path.unlink()
            answered.add(answer["host"])
            know(answer["secrets"])
            yield from of_host(answer, work)
        for name in some:
            failed = ended.failed.get(name)
            why = failed.message if failed else ended.output or "the run ended before"
            why = "" if name in answered else " ".join(why.split())[-300:]
            yield BundleHost(name, asked=True, answered=name in answered, why=why)


def _counter(step: Callable[[], None]) -> Callable[[Any], None]:
    def count(event: Any) -> None:
        kind, data = event.get("event"), event.get("event_data") or {}
        failed = kind in ("runner_on_failed", "runner_on_unreachable")
        if failed or (kind == "runner_on_ok" and data.get("task") == _LAST):
            step()

    return count
