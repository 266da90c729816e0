# SPDX-License-Identifier: GPL-3.0-or-later

"""What a replica's unit says in every runtime, and the supervisor that it runs, as files.

With what rendering yields at all, and the spelling of words in unit and environment files.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from ..documents import dumps, knowledge
from ..findings import error
from ..host.program import READERS, findings, packaged
from ..host.weight_cache.mounts import units_of
from ..plan.replica import agent_port, start_timeout
from ..plan.types import Plan, Replica
from ..quality.battery import few_questions
from .host.context import LaunchSpec

SLICE = "apiary.slice"


def directory(plan: Plan) -> str:
    """Return the directory of the deployment's files on the host."""
    return f"/etc/apiary/{plan.deployment.name}"


def plan_path(plan: Plan) -> str:
    """Return where the host keeps the plan it runs."""
    return f"{directory(plan)}/plan.json"


def spec_path(plan: Plan, index: int) -> str:
    """Return where a replica's launch document lies on the host."""
    return f"{directory(plan)}/replica-{index}.json"


def credentials(plan: Plan) -> dict[str, str]:
    """Return {variable: file on the host} of the deployment's secrets, for LoadCredential=."""
    return {name: f"{directory(plan)}/credentials/{name}" for name in plan.deployment.credentials}


def digest(text: str) -> str:
    """Return what a unit carries of a file it reads, so that the file's change changes it."""
    return hashlib.sha256(text.encode()).hexdigest()


def launch_spec(plan: Plan, replica: Replica, index: int) -> LaunchSpec:
    """Return the launch document of one replica of a plan."""
    deployment = plan.deployment
    address = deployment.listen_address
    # A wildcard address listens on loopback too.
    wildcard = address in ("0.0.0.0", "::", "")  # noqa: S104
    own = "127.0.0.1" if wildcard else address
    headless = plan.node is not None and plan.node.rank > 0
    return LaunchSpec(
        unit=replica.unit,
        deployment=deployment.name,
        replica=index,
        runtime=deployment.engine.runtime,
        gpus=replica.gpus,
        cpus=replica.cpus,
        memory_nodes=replica.memory_nodes,
        listen_address=address,
        probe_address=plan.node.master_address if plan.node and headless else own,
        port=replica.port,
        model_name=deployment.model.name,
        weights=deployment.model.path,
        secrets=deployment.credentials,
        after=tuple(other.unit for other in plan.replicas[:index]),
        start_timeout_seconds=start_timeout(plan, replica),
        drain_timeout_seconds=deployment.limits.drain_timeout_seconds,
        hang_seconds=deployment.limits.hang_timeout_seconds
        or knowledge("serving/life.yml")["watchdog"]["hang_seconds"],
        headless=headless,
        agent_port=None if headless else agent_port(replica),
        quality_questions_per_hour=0 if headless else deployment.limits.quality_questions_per_hour,
    )


def spec_file(plan: Plan, replica: Replica, index: int) -> RenderedFile:
    """Return a replica's launch document, which its supervisor reads."""
    text = dumps(launch_spec(plan, replica, index))
    return RenderedFile(spec_path(plan, index), "0644", text, replica.unit)


def unit_facts(plan: Plan, replica: Replica, index: int) -> dict[str, Any]:
    """Return what the unit of a replica needs in any runtime, by the names of the templates."""
    serving: Mapping[str, Any] = knowledge("serving.yml")
    spec = launch_spec(plan, replica, index)
    return {
        "plan": plan,
        "replica": replica,
        "index": index,
        "engine_name": _engine_name(plan, index),
        "spec": spec,
        "launcher": LAUNCHER,
        "slice": SLICE,
        "plan_path": plan_path(plan),
        "spec_path": spec_path(plan, index),
        "spec_digest": digest(spec_file(plan, replica, index).content),
        "credentials": credentials(plan),
        "settings": serving["unit"],
        "mounts": " ".join(units_of(plan.deployment.model.path)),
        "oom": serving["slice"],
        "groups": serving["groups"]["entries"],
        "caches": [
            entry["directory"] for entry in serving["cache_directories"]["entries"].values()
        ],
        "cache_root": replica.unit.removesuffix(".service"),
        "stop_seconds": spec.drain_timeout_seconds + serving["unit"]["stop_margin_seconds"],
        "watchdog_seconds": knowledge("serving/life.yml")["watchdog"]["unit_seconds"],
    }


def _engine_name(plan: Plan, index: int) -> str:
    """Return how a replica's engine is cut, such as TP4 or `TP8 PP2, host 1 of 2,`."""
    engine = plan.layout.engines[index]
    name = f"TP{engine.tensor_parallel_size}"
    if engine.pipeline_parallel_size > 1:
        name += f" PP{engine.pipeline_parallel_size}"
    if plan.node is not None:
        name += f", host {plan.node.rank + 1} of {plan.node.size},"
    return name


LAUNCHER = "/usr/libexec/apiary/launch"
PACKAGE = "/usr/libexec/apiary/apiary_launch"
LIFE = "life.json"
_SOURCES = Path(__file__).parent / "host"
# -B: no byte code beside the sources, whoever runs it; a collection's sources carry no shebang.
_PROGRAM = """#!/usr/bin/env -S python3 -B
# Managed by Apiary; changes made here are overwritten.
import sys

from apiary_launch.{module} import main

sys.exit(main())
"""


@functools.cache
def supervisor_files() -> tuple[tuple[str, str, str], ...]:
    """Return (path, octal mode, text) of every file of the supervisor, the entry last.

    An entry that is there finds a package that is complete.
    """
    package = [
        (f"{PACKAGE}/{path.name}", "0644", packaged(path))
        for path in sorted((*_SOURCES.glob("*.py"), *READERS), key=lambda path: path.name)
    ]
    return (
        *package,
        (f"{PACKAGE}/finding.py", "0644", findings("CONTAINER", "REPLICA")),
        (f"{PACKAGE}/{LIFE}", "0644", life_document()),
        (LAUNCHER, "0755", program("main")),
    )


def program(module: str) -> str:
    """Return a program that lies beside the package and runs one module's main()."""
    return _PROGRAM.format(module=module)


def life_document() -> str:
    """Return what the supervisor knows of engines and limits, as it reads it on the host."""
    facts = {**knowledge("serving/life.yml"), "causes": knowledge("serving/causes.yml")}
    facts["questions"] = {**facts["questions"], "entries": few_questions()}
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"


UNITS = "/etc/systemd/system"
_TEMPLATES = Path(__file__).parent / "templates"
_BARE = re.compile(r"[A-Za-z0-9_./:,=@+-]+", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# systemd drops a variable whose value has one of these (string_has_cc of env-util.c).
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class RenderedFile:
    """A file to be on the host: absolute path, octal mode, text.

    ``unit`` is the replica that must start anew when the file changes; None where nobody must.
    """

    path: str
    mode: str
    content: str
    unit: str | None = None


def secret_reference(name: str) -> str:
    """Return what stands for a secret in a file until the host has its value."""
    return f"@secret:{name}@"


def quote(word: str) -> str:
    """Return a word as systemd reads it back unchanged from a unit file (systemd.syntax(7))."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    return '"' + _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", escaped) + '"'


def quote_argument(word: str) -> str:
    """Return a word of ExecStart=: as ``quote``, and without $ expansion; plain words stay bare."""
    return word if _BARE.fullmatch(word) else quote(word).replace("$", "$$")


def environment_file(variables: Mapping[str, str]) -> str:
    """Return variables as an EnvironmentFile= that systemd reads back unchanged, sorted.

    Raises ApiaryError with REPLICA-VARIABLE for what systemd would drop without failing.
    Source: systemd src/basic/env-file.c (SHELL_NEED_ESCAPE within double quotes).
    """
    lines = []
    for name, value in sorted(variables.items()):
        if not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise error(
                "REPLICA-VARIABLE",
                f"engine.env.{name!r}" if not _NAME.fullmatch(name) else f"engine.env.{name}",
                f"is {value!r}; systemd passes on names of letters, digits and _, "
                "and values without control characters",
                source="systemd src/basic/env-util.c",
            )
        bare = not value or _BARE.fullmatch(value)
        escaped = re.sub(r'(["\\`$])', r"\\\1", value)
        lines.append(f"{name}={value}\n" if bare else f'{name}="{escaped}"\n')
    return "".join(lines)


def render_device(key: str) -> str:
    """Return udev's stable name of a GPU's render node, so that no unit stores a minor number.

    Source: systemd's 60-drm.rules (``dri/by-path/$env{ID_PATH}-render``).
    """
    return f"/dev/dri/by-path/pci-{key}-render"


def _dumps(value: Any, **options: Any) -> str:
    """Return JSON that YAML reads alike: there a pair of surrogates is no letter."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return re.sub(r"[^\x00-\x7e]", lambda match: f"\\U{ord(match[0]):08x}", text)


@cache
def templates() -> jinja2.Environment:
    """Return the environment of every template of a unit; a name it does not know is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - unit files, not HTML; quote() is the escaping they need
    )
    environment.policies["json.dumps_function"] = _dumps
    environment.filters |= {"quote": quote, "argument": quote_argument, "device": render_device}
    return environment
