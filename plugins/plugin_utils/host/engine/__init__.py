# SPDX-License-Identifier: GPL-3.0-or-later

"""The engines that a host's deployments name: wheels in directories, images by digest, or neither.

Each stays while a plan of the host or a release that it retains names it, so that a rollback has
its engine; the others of Apiary's making are removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

from ...deployment import EngineSpec
from ...evidence.types import Evidence
from ...findings import Finding
from ..rocm.target import support
from ..types import Check, ConcernPlan

RECORDS = "/var/lib/apiary/engines/"
_PROGRAMS = {"quadlet": "podman", "docker": "docker"}
_HASHED = re.compile(r"[^#]*--hash=sha256:[0-9a-f]{64}")
_NAMED = re.compile(r'"(?:executable|image)": "([^"\\]{1,1024})"')
_TARGET = re.compile(r"^gfx_target_version (\d{5,6})$", re.MULTILINE)


@dataclass(frozen=True)
class Settings:
    """What is requested.

    ``requested`` are the engines of the host's deployments. ``requirements`` are texts of pins with
    hashes by the name of an engine's directory, ``index_url`` and ``wheels`` where pip finds what
    they name: an index, a directory of the host. Of ``secrets`` only the names go further.
    """

    requested: tuple[EngineSpec, ...] = ()
    requirements: dict[str, str] = field(default_factory=dict)
    index_url: str | None = None
    wheels: str | None = None
    python: str = "python3"
    packages: tuple[str, ...] = ()
    pull: bool = True
    secrets: dict[str, str] = field(default_factory=dict)
    state: Literal["present", "absent"] = "present"


def decide(settings: Settings, evidence: Evidence) -> ConcernPlan:
    """Return what brings the engines and removes those that nothing names."""
    present = settings.state == "present"
    requested = settings.requested if present else ()
    brought = {each["path"]: each for each in _wheels(settings, requested)}
    images = {each["reference"]: each for each in _images(settings, requested)}
    resources = [*brought.values(), *images.values()]
    if brought and settings.packages:
        resources.insert(0, {"kind": "packages", "names": list(settings.packages)})
    records = _records(evidence)
    named = _named(evidence)
    if present and named is not None:
        named |= {_directory(each) for each in requested} | {each.image or "" for each in requested}
    for name, record in records.items():
        if not present or (named is not None and name not in named):
            resources.append(_absent(name, record))
    return ConcernPlan(
        resources=tuple(resources),
        findings=tuple(_findings(settings.requirements)),
        checks=tuple(_checks(records, settings, evidence)),
    )


def _wheels(settings: Settings, requested: tuple[EngineSpec, ...]) -> Iterator[Mapping[str, Any]]:
    for engine in requested:
        pins = settings.requirements.get(PurePosixPath(_directory(engine)).name)
        if engine.runtime == "native" and pins is not None:
            yield {
                "kind": "wheels",
                "path": _directory(engine),
                "version": engine.version,
                "requirements": pins,
                "python": settings.python,
                "index_url": settings.index_url,
                "wheels": settings.wheels,
                "pip_config": _secret(settings, "pip_config"),
            }


def _images(settings: Settings, requested: tuple[EngineSpec, ...]) -> Iterator[Mapping[str, Any]]:
    for engine in requested:
        if settings.pull and engine.runtime in _PROGRAMS and _pinned(engine):
            yield {
                "kind": "image",
                "reference": engine.image,
                "program": _PROGRAMS[engine.runtime],
                "version": engine.version,
                "credentials": _secret(settings, "registries"),
            }


def _absent(name: str, record: Mapping[str, Any]) -> Mapping[str, Any]:
    if record["kind"] == "wheels":
        return {"kind": "wheels", "path": name, "state": "absent"}
    program = record["program"]
    return {"kind": "image", "reference": name, "program": program, "state": "absent"}


def _findings(requirements: Mapping[str, str]) -> Iterator[Finding]:
    for directory, pins in requirements.items():
        # A requirement with its options is one line, as pip joins them.
        lines = [line.strip() for line in pins.replace("\\\n", " ").splitlines()]
        loose = [line for line in lines if line and line[0] != "#" and not _HASHED.match(line)]
        if loose:
            yield Finding(
                "ENGINE-UNPINNED",
                f"engine_requirements: {directory}",
                f"found {loose[0][:80]!r} without a sha256, expected one for each package",
            )


def _checks(
    records: Mapping[str, Mapping[str, Any]], settings: Settings, evidence: Evidence
) -> Iterator[Check]:
    """Yield whether each engine was built for the host's GPUs and driver, and as its spec says."""
    gpus = sorted(_gfx_of(evidence))
    loaded = evidence.files.get("/sys/module/amdgpu/version", "").strip()[:80]
    modules = {each["module"]: series for series, each in support()["drivers"].items()}
    specs = {each.image or _directory(each): each for each in settings.requested}
    for name, record in records.items():
        facts, spec = record["facts"], specs.get(name)
        built = facts.get("gfx")
        if gpus and isinstance(built, list) and built:
            # A target may have features behind it: gfx942:sramecc+:xnack-
            targets = {str(each).partition(":")[0] for each in built}
            found = f"a build for {', '.join(sorted(targets))}"[:200]
            right: bool | None = set(gpus) <= targets
            yield Check.of("ENGINE-BUILD", name, right, found, f"one for {', '.join(gpus)}")
        rocm = _series(facts.get("rocm"))
        known = support()["series"].get(rocm)
        # A driver that the kernel brings has no version.
        if loaded and known:
            series = modules.get(loaded)
            right = series in known["drivers"] if series else None
            expected = f"a driver of {', '.join(known['drivers'])} for ROCm {rocm}"
            yield Check.of("ENGINE-DRIVER", name, right, f"amdgpu {loaded}", expected)
        aiter = str(facts.get("aiter") or "")[:80].partition("+")[0]
        if spec and spec.rocm and rocm:
            right = _series(spec.rocm) == rocm
            yield Check.of("ENGINE-STACK", name, right, f"ROCm {rocm}", f"rocm: {spec.rocm}")
        if spec and aiter and (spec.aiter or spec.runtime == "native"):
            # What a deployment does not say, no rule knows; an image may be upstream's.
            right = spec.aiter == aiter
            yield Check.of("ENGINE-STACK", name, right, f"AITER {aiter}", f"aiter: {spec.aiter}")


def _series(version: object) -> str:
    """Return 7.2 of 7.2.53211-e1a6bc5663, as torch has ROCm's version; "" of what is none."""
    found = re.match(r"\d{1,3}\.\d{1,3}(?=\.|$)", version) if isinstance(version, str) else None
    return found[0] if found else ""


def _records(evidence: Evidence) -> dict[str, Mapping[str, Any]]:
    """Return what Apiary brought to the host, by directory or image; damaged records are none."""
    records: dict[str, Mapping[str, Any]] = {}
    for path, text in evidence.files.items():
        if not path.startswith(RECORDS):
            continue
        try:
            record = json.loads(text)
        except ValueError:
            continue
        if not isinstance(record, dict) or not isinstance(record.get("name"), str):
            continue
        image = record.get("kind") == "image" and record.get("program") in _PROGRAMS.values()
        if image or (record.get("kind") == "wheels" and record["name"].startswith("/")):
            facts = record.get("facts")
            records[record["name"]] = {**record, "facts": facts if isinstance(facts, dict) else {}}
    return records


def _named(evidence: Evidence) -> set[str] | None:
    """Return the engines that plans and retained releases of the host name; None if unknown."""
    output = evidence.commands.get("engines_named")
    # grep ends with 1 where nothing matches, and with 2 where a directory is not there yet.
    if output is None or output.exit not in (0, 1, 2) or output.error:
        return None
    names = set(_NAMED.findall(output.stdout))
    return names | {_above(name) for name in names if name.startswith("/")}


def _directory(engine: EngineSpec) -> str:
    return _above(engine.executable)


def _above(executable: str) -> str:
    """Return the directory of an engine by its program, /opt/vllm/0.33.0/bin/vllm."""
    return str(PurePosixPath(executable).parents[1]) if executable.count("/") > 1 else executable


def _pinned(engine: EngineSpec) -> bool:
    return engine.image is not None and "@sha256:" in engine.image


def _secret(settings: Settings, name: str) -> str | None:
    return name if name in settings.secrets else None


def _gfx_of(evidence: Evidence) -> set[str]:
    """Return the GPUs' targets as KFD has them: 90402 is gfx942."""
    texts = (text for path, text in evidence.files.items() if path.endswith("/properties"))
    numbers = {int(found) for text in texts for found in _TARGET.findall(text)}
    return {f"gfx{each // 10000}{each // 100 % 100:x}{each % 100:x}" for each in numbers}
