# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan, or a host's container engine, lacks to run replicas in containers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...documents import knowledge
from ...findings import Finding
from ...plan.types import Plan

FACTS = "serving/containers.yml"
_VERSION = re.compile(r"(?<!\d)\d+(?:\.\d+)+")


def is_pinned(image: str) -> bool:
    """Say whether a registry can't move what this names."""
    return "@sha256:" in image


def review(plan: Plan) -> Iterator[Finding]:
    """Yield every finding about a plan whose replicas shall run in containers."""
    yield from _image(plan)
    for index, replica in enumerate(plan.replicas):
        words = {"its command": replica.argv, "its environment": tuple(replica.env.values())}
        for where, texts in words.items():
            garbled = [text for text in texts if not text.isprintable()]
            if where == "its command" and "" in texts:
                garbled.append("")
            if garbled:
                yield Finding(
                    "CONTAINER-WORD",
                    f"replica {index}",
                    f"{where} has {', '.join(map(repr, garbled))}; Podman's generator drops empty"
                    " words and garbles what can't be printed",
                    source=knowledge(FACTS)["engines"]["quadlet"]["garbles_source"],
                )
    path = plan.deployment.model.path
    if ":" in path or "," in path:
        yield Finding(
            "CONTAINER-PATH",
            "model.path",
            f"{path} has a colon or comma, which parts the fields of a mount",
        )
    if plan.deployment.engine.image is not None:
        yield from _ipc(plan, plan.deployment.engine.image)


def _image(plan: Plan) -> Iterator[Finding]:
    engine = plan.deployment.engine
    if engine.image is None:
        official = list(knowledge(FACTS)["images"]["families"])[0]  # noqa: RUF015 - a generator
        yield Finding(
            "CONTAINER-NO-IMAGE",
            "engine.image",
            f"is not set, and runtime {engine.runtime} runs an image",
            version=engine.version,
            official=official,
        )
    elif not is_pinned(engine.image):
        yield Finding(
            "CONTAINER-UNPINNED",
            engine.image,
            "is named by its tag, which its registry can move: replicas of one fleet could run"
            " different engines; expected a digest",
        )


def _ipc(plan: Plan, image: str) -> Iterator[Finding]:
    """Tell of the variable that official images set, where engines exchange GPU memory."""
    facts = knowledge(FACTS)["images"]
    baked = any(f"{name}:" in image or f"{name}@" in image for name in facts["legacy_ipc"])
    several = any(len(replica.gpus) > 1 for replica in plan.replicas)
    configured = all("HSA_ENABLE_IPC_MODE_LEGACY" in replica.env for replica in plan.replicas)
    if baked and several and not configured:
        yield Finding(
            "CONTAINER-IPC-MODE",
            image,
            "sets HSA_ENABLE_IPC_MODE_LEGACY=1, with which some driver and ROCm pairs fail:"
            " `hipIpcGetMemHandle failed`, p2p.cc:256",
            source=facts["legacy_ipc_source"],
        )


def engine_findings(runtime: str, version: str | None, host: str) -> Iterator[Finding]:
    """Yield why a host's engine, as `podman --version` or `docker --version` tells it, won't do.

    ``version`` None: the host has none.
    """
    facts = knowledge(FACTS)["engines"].get(runtime)
    if facts is None:
        return
    engine = "podman" if runtime == "quadlet" else runtime
    match = _VERSION.search(version or "")
    if match is None:
        yield Finding(
            "CONTAINER-ENGINE-ABSENT",
            host,
            f"found no {engine}, which engine.runtime {runtime} needs",
        )
    elif _order(match[0]) < _order(facts["minimum"]):
        what = "reads no quadlets" if runtime == "quadlet" else "lacks options of `run`"
        yield Finding(
            "CONTAINER-RUNTIME-OLD",
            host,
            f"found {engine} {match[0]}, which {what}; expected {facts['minimum']} or later",
            source=facts["source"],
        )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
