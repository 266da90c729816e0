# SPDX-License-Identifier: GPL-3.0-or-later

"""What the commands read: the documents in files, and the option that all of them have."""

from __future__ import annotations

import functools
import gzip
import json
import os
import re
import tarfile
import zlib
from collections.abc import Callable
from typing import IO, Any, BinaryIO, TypeVar, cast

import click
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.checkpoint import read_checkpoint
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan, plan_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology

# Where a file comes from that is not there.
EVIDENCE = "`apiary probe HOST` writes evidence/HOST.json"
PLAN = "`apiary plan DEPLOYMENT EVIDENCE --out plan.json`, or playbooks/plan.yml, writes a plan"
PLACEMENT = "`apiary place EVIDENCE --tp 4 --json > placement.json` writes a placement"
DEPLOYMENT = "`cp inventory/example/group_vars/gpu_hosts/deployment.yml .` begins a deployment"
CONFIG = "give the config.json of the model's repository, or the name of a model that Apiary knows"
BENCH = "`apiary bench URL --out RESULT`, or playbooks/bench.yml, writes a benchmark's result"

F = TypeVar("F", bound=Callable[..., Any])


def _remember_json(ctx: click.Context, _option: click.Parameter, value: bool) -> bool:
    ctx.find_root().meta["apiary.json"] = value
    return value


def json_option(command: F) -> F:
    """Add --json to a command; a refusal then is JSON on stderr as well."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        callback=_remember_json,
        is_eager=True,
        help="Print the JSON document instead of a table.",
    )(command)


def read_output(name: str, made: str) -> str:
    """Return a file's text; where there is none, the refusal says what makes it."""
    return read_text(name) if os.path.lexists(name) else read_text(name, made)


def load_topology(name: str) -> Topology:
    """Return the topology in a file: evidence, a capture, or an archive of the KFD tree."""
    return read(load_capture(name), name)


def load_capture(name: str) -> str:
    """Return the text of evidence, a capture, or an archive of the KFD tree."""
    return tree_text(name) if name.endswith(ENDINGS) else read_output(name, EVIDENCE)


def load_plan(name: str) -> Plan:
    """Return the plan in a file, checked as far as it can be without its host."""
    made = "a plan, as `apiary plan --out FILE` or the site playbook writes it"
    return plan_of(_document_of(name, Plan.SCHEMA, made, PLAN), name)


def load_plan_or_deployment(name: str) -> Plan | Deployment:
    """Return the plan in a file, or the deployment where it is none."""
    data = _load_yaml(name, PLAN)
    if isinstance(data, dict) and data.get("schema") == Plan.SCHEMA:
        return load_plan(name)
    return load_deployment(name)


def load_placement(name: str) -> Placement:
    """Return the placement in a file."""
    made = "a placement, as `apiary place --json` prints it"
    return from_document(Placement, _document_of(name, Placement.SCHEMA, made, PLACEMENT), name)


def _document_of(name: str, schema: str, made: str, command: str) -> Any:
    """Return the data of a file that must be a document of this schema."""
    data = _load_yaml(name, command)
    result = data.get("schema") if isinstance(data, dict) else None
    if result != schema:
        raise error("DOC-SCHEMA", name, f"schema is {result!r}, expected {schema!r}", document=made)
    return data


def load_architecture(deployment: Deployment, config_json: str | None, name: str) -> Architecture:
    """Return the model of a deployment: of the config.json given, else of its own, else known."""
    config = config_json or deployment.model.config
    if config:
        return read_checkpoint(config, functools.partial(read_output, made=CONFIG))
    return architecture_of(deployment, name)


def load_deployments(name: str) -> tuple[Deployment, ...]:
    """Return the deployments of a file: one document, or the playbooks' list of several."""
    data = _load_yaml(name)
    if isinstance(data, dict) and "apiary_deployments" in data:
        listed = data["apiary_deployments"]
        if not isinstance(listed, list) or not listed:
            raise error(
                "DOC-TYPE",
                name,
                "field apiary_deployments: expected a list of deployments",
                field="apiary_deployments",
                allowed="a list of one deployment or more",
            )
        return tuple(from_document(Deployment, item, name) for item in listed)
    return (load_deployment(name),)


def load_deployment(name: str) -> Deployment:
    """Return the one deployment of a file."""
    data = _load_yaml(name)
    # A group_vars file holds the same document under the playbooks' variable, beside others.
    if isinstance(data, dict) and "apiary_deployment" in data:
        data = data["apiary_deployment"]
    return from_document(Deployment, data, name)


def _load_yaml(name: str, made: str = DEPLOYMENT) -> Any:
    """Return the data of a YAML or JSON file; ``made`` says where one comes from."""
    text = read_output(name, made)
    if not text.strip():
        raise error("FILE-SYNTAX", name, "is empty")
    try:
        return json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
    except (yaml.YAMLError, json.JSONDecodeError) as failure:
        raise error(
            "FILE-SYNTAX", name, f"is neither JSON nor YAML: {' '.join(str(failure).split())}"
        ) from failure


ENDINGS = (".tar.gz", ".tgz", ".tar")
# 64 partitions with all their links are some 10 MiB in 10 000 files.
_MOST_BYTES, _MOST_FILES = 64 * 2**20, 100_000
_WANTED = re.compile(
    r"(?:^|/)(nodes/\d{1,4}/(?:(?:io_links|p2p_links|mem_banks)/\d{1,4}/)?(?:properties|gpu_id))$"
)


class _Bounded:
    """Reads no more of an archive than is real, whatever it is: contents, headers, their names."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, name: str) -> None:
        self._stream, self._name, self._left = stream, name, _MOST_BYTES

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _unreadable(self._name, f"it has over {_MOST_BYTES >> 20} MiB")
        return data


def tree_text(name: str) -> str:
    """Return `==> nodes/… <==` and the content of each file of a KFD tree in an archive.

    Nothing is unpacked, links are not followed. Raises ApiaryError with FILE-UNREADABLE where the
    file is no whole tar archive or is larger than any KFD tree.
    """
    parts: list[str] = []
    try:
        with (
            _opened(name) as stream,
            tarfile.open(fileobj=cast("IO[bytes]", _Bounded(stream, name)), mode="r|") as archive,
        ):
            for count, member in enumerate(archive):
                if count > _MOST_FILES:
                    raise _unreadable(name, f"it has over {_MOST_FILES} files")
                match = _WANTED.search(member.name)
                content = archive.extractfile(member) if match and member.isreg() else None
                if match and content:
                    text = content.read().decode("utf-8", errors="replace")
                    parts.append(f"==> {match.group(1)} <==\n{text}")
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as failure:
        raise _unreadable(name, str(failure)) from failure
    if not parts:
        raise _unreadable(name, "it has no file of a KFD tree, such as nodes/2/properties")
    return "\n".join([*parts, ""])


def _opened(name: str) -> BinaryIO | gzip.GzipFile:
    """Return what an archive unpacks to, read as it is asked for."""
    with open(name, "rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return gzip.open(name) if packed else open(name, "rb")


def _unreadable(name: str, reason: str) -> Exception:
    return error(
        "FILE-UNREADABLE",
        name,
        f"cannot be read as an archive of /sys/class/kfd/kfd/topology: {reason}",
        origin="`tar -czf kfd.tar.gz -C /sys/class/kfd/kfd topology` packs it",
    )
