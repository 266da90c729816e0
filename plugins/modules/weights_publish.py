#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Publish a pinned revision of a model's weights in a store, and keep it right."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.finding import ApiaryError, error, fail
from ..module_utils.weights import manifest as weights_manifest
from ..module_utils.weights import store as weights_store
from ..module_utils.weights.fetch import store_problem
from ..module_utils.weights.manifest import COMMIT
from ..module_utils.weights.publish import Job, Selection, carry_out, make_plan, settled

ARGUMENTS: dict[str, Any] = {
    "action": {
        "type": "str",
        "choices": ["publish", "repair", "verify", "prune"],
        "default": "publish",
    },
    "store": {"type": "path", "required": True},
    "repository": {"type": "str", "required": True},
    "revision": {"type": "str", "default": ""},
    "endpoint": {"type": "str", "default": "https://huggingface.co"},
    "token_file": {"type": "path", "no_log": False},
    "source": {"type": "path"},
    "allow_patterns": {"type": "list", "elements": "str", "default": []},
    "ignore_patterns": {"type": "list", "elements": "str", "default": []},
    "skip": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "beside": {"type": "str", "required": True},
            "patterns": {"type": "list", "elements": "str", "required": True},
        },
    },
    "allow_unpinned": {"type": "bool", "default": False},
    "make_current": {"type": "bool", "default": True},
    "hashes": {"type": "bool", "default": False},
    "keep": {"type": "int", "default": 2},
    "pinned": {"type": "list", "elements": "str", "default": []},
    "parallel": {"type": "int", "default": 4},
    "retries": {"type": "int", "default": 5},
    "retry_delay": {"type": "float", "default": 2},
    "timeout": {"type": "float", "default": 60},
    "reserve_bytes": {"type": "int", "default": 0},
}


def read_job(parameters: dict[str, Any], revision: str) -> Job:
    """Return what is requested; what a job has, but for its selection, are options."""
    names = [field.name for field in dataclasses.fields(Job) if field.name in parameters]
    selection = Selection(
        tuple(parameters["allow_patterns"]),
        tuple(parameters["ignore_patterns"]),
        tuple((rule["beside"], tuple(rule["patterns"])) for rule in parameters["skip"]),
    )
    options = {name: parameters[name] for name in names}
    return Job(**{**options, "revision": revision, "selection": selection})


def publish(job: Job, level: str, check: bool) -> dict[str, Any]:
    """Have the revision there and right; ``level`` says how closely it is looked at."""
    origin = job.origin()
    with contextlib.nullcontext() if check else weights_store.locked(job.shelf()):
        progress = None if check else job.shelf().own(".progress.json")
        plan = make_plan(job, origin, level, progress)
        if plan.changed and not check:
            carry_out(job, origin, plan)
    return {
        "changed": plan.changed,
        "revision": plan.commit,
        "path": plan.shelf.revision(plan.commit),
        "fetched": sorted(file.path for file in plan.fetch),
        "fetched_bytes": plan.fetch_bytes,
        "total_bytes": plan.fetch_bytes + sum(file.size for file in plan.keep),
        "diff": plan.diff(),
    }


def verify(job: Job, level: str) -> dict[str, Any]:
    """Compare a published revision with its manifest."""
    directory = job.shelf().revision(job.revision)
    manifest = weights_manifest.read(directory)
    deviations = weights_manifest.verify(directory, manifest, level, job.parallel)
    if deviations:
        raise weights_manifest.damaged(directory, manifest, deviations)
    return {
        "changed": False,
        "revision": job.revision,
        "path": directory,
        "total_bytes": manifest.total_bytes,
        "unknown": weights_store.unknown(directory, manifest),
    }


def prune(job: Job, keep: int, pinned: list[str], check: bool) -> dict[str, Any]:
    """Remove old revisions and leftovers."""
    shelf = job.shelf()
    for pin in pinned:
        if not COMMIT.fullmatch(pin):
            raise error(
                "WEIGHTS-PUBLISH-PINNED",
                pin,
                "found no commit among the pinned revisions, expected 40 hexadecimal digits",
            )
    with contextlib.nullcontext() if check else weights_store.locked(shelf):
        old = weights_store.doomed(
            weights_store.ages(shelf), shelf.current(), frozenset(pinned), max(1, keep)
        )
        removed = old + shelf.leftovers()
        before = shelf.revisions() + shelf.leftovers()
        if removed and not check:
            weights_store.remove(shelf, removed)
    return {
        "changed": bool(removed),
        "removed": removed,
        "diff": {
            "before_header": shelf.path,
            "after_header": shelf.path,
            "before": "".join(name + "\n" for name in before),
            "after": "".join(name + "\n" for name in before if name not in removed),
        },
    }


def run(parameters: dict[str, Any], check: bool) -> dict[str, Any]:
    """Do what is requested, and return the result."""
    action = parameters["action"]
    job = read_job(parameters, parameters["revision"])
    if action == "prune":
        return prune(job, parameters["keep"], parameters["pinned"], check)
    if action == "verify" or (action == "repair" and not job.revision):
        job = read_job(parameters, settled(job))
    if action == "verify":
        return verify(job, "hashes" if parameters["hashes"] else "sizes")
    return publish(job, "hashes" if action == "repair" else "touched", check)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    # Hosts read the store as whoever runs the engine, whatever mask root has here.
    os.umask(0o022)
    outcome: dict[str, Any] = {}
    try:
        outcome = run(module.params, module.check_mode)
    except ApiaryError as refusal:
        fail(module, refusal)
    except OSError as failure:
        fail(module, store_problem(failure.filename or module.params["store"], failure))
    if outcome.get("unknown"):
        module.warn(f"{outcome['path']}: nobody published {', '.join(outcome['unknown'])}")
    module.exit_json(**outcome)


if __name__ == "__main__":
    main()
