# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary mirror list`: everything that a run of the playbooks fetches from elsewhere."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, from_host
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.fetches import Fetch
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import fold

from apiary.app import output
from apiary.app.inputs import json_option
from apiary.app.options import inventory_option, limit_option, vault_option
from apiary.help.doctor.inventory import Scope, read_inventory, run

_TITLES = {
    "repository": "Package repositories",
    "key": "Keys, by fingerprint",
    "package": "Packages",
    "image": "Images, by digest",
    "wheel": "Wheels, by hash",
    "weights": "Weights",
    "export": "Exports that are mounted",
}


@click.group()
def mirror() -> None:
    """Say what a mirror must have for hosts without a way to the internet.

    \b
    apiary mirror list --inventory inventory/mine
    """


@mirror.command(name="list")
@inventory_option("The hosts, and what they are to serve; required.")
@limit_option()
@vault_option("For the inventory, as Ansible's; may be given often.")
@json_option
def list_command(
    sources: tuple[str, ...], limit: str | None, vault: tuple[str, ...], as_json: bool
) -> int:
    """List packages, keys, images, wheels, weights and exporters that a run fetches.

    The hosts are asked what they have, and nothing changes on them; what is listed are the very
    resources that the roles would apply. Of a host that has some of it already, what is still to
    come is listed, and all that the inventory pins.

    \b
    apiary mirror list --inventory inventory/mine
    apiary mirror list -i inventory/mine --limit gpu-001 --json

    Exit code 0: every host answered; 1: one did not; 2: wrong usage.
    """
    if not sources:
        raise click.UsageError("give an --inventory")
    scope = Scope(sources, limit, vault)
    names = [host.name for host in read_inventory(scope).hosts]
    with tempfile.TemporaryDirectory(prefix="apiary-mirror-") as directory:
        ended = run(scope, names, connect=True, fetches=directory)
        lists = {path.stem: path.read_text("utf-8") for path in Path(directory).glob("*.json")}
    refused: Mapping[str, Mapping[str, object]] = ended.custom.get("doctor_refused") or {}
    result = collected(lists, _lost(refused, {n: f.message for n, f in ended.failed.items()}))
    if as_json:
        output.print_document(result)
    else:
        for kind, title in _TITLES.items():
            _show(title, [each for each in result.needed if each.fetch.kind == kind])
        output.echo(f"{result.hosts} hosts; {_size(result.known_bytes)} of known size")
    output.report(result.findings, as_json)
    return output.exit_code(result.findings)


def _lost(
    refused: Mapping[str, Mapping[str, object]], failed: Mapping[str, str]
) -> tuple[Finding, ...]:
    found: list[Finding] = []
    for host, report in refused.items():
        some = [from_host(each) for each in report["findings"]]  # type: ignore[attr-defined]
        found += some or [Finding("FLEET-SURVEY", host, str(report["why"])[-300:])]
    found += [Finding("FLEET-UNREACHABLE", host, why[-300:]) for host, why in failed.items()]
    return tuple(dict.fromkeys(found))


def collected(lists: Mapping[str, str], findings: Iterable[Finding] = ()) -> MirrorList:
    """Return one list of those of the hosts: each thing once, with who fetches it."""
    by_fetch: defaultdict[Fetch, list[str]] = defaultdict(list)
    for host, text in sorted(lists.items()):
        for each in json.loads(text):
            by_fetch[from_document(Fetch, each, host)].append(host)
    order = list(_TITLES)
    fetches = sorted(by_fetch, key=lambda each: (order.index(each.kind), each.name, each.version))
    needed = tuple(Needed(each, fold(by_fetch[each])) for each in fetches)
    size = sum({(each.kind, each.name): each.bytes or 0 for each in fetches}.values())
    return MirrorList(len(lists), size, needed, tuple(findings))


def _show(title: str, needed: list[Needed]) -> None:
    if not needed:
        return
    table = output.plain_table(title, "version", "from", "size", "hosts")
    for each in needed:
        fetch = each.fetch
        version = fetch.version if not fetch.digest else f"{fetch.version} {fetch.digest}".strip()
        address = "" if fetch.address == fetch.name else fetch.address
        table.add_row(fetch.name, version, address, _size(fetch.bytes), each.hosts)
    output.show(table)


def _size(count: int | None) -> str:
    return "" if count is None else f"{count / 1e9:.1f} GB"


@dataclass(frozen=True)
class Needed:
    """One thing to mirror, and the hosts that fetch it, folded."""

    fetch: Fetch
    hosts: str


@dataclass(frozen=True)
class MirrorList:
    """All that hosts fetch. ``known_bytes`` is the sum of what has a known size."""

    SCHEMA: ClassVar[str] = "apiary.mirror/v1"

    hosts: int
    known_bytes: int
    needed: tuple[Needed, ...] = ()
    findings: tuple[Finding, ...] = ()
