# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary support-bundle`: what somebody who helps needs to see, without what nobody may see."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    knowledge,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    error,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.role_options import (
    ROLES,
    read_role,
)

from apiary.app import output
from apiary.app.ask_ansible import ask_ansible
from apiary.app.inputs import json_option
from apiary.app.options import complete_hosts, inventory_option, vault_option
from apiary.app.runner import on_signals
from apiary.fleet.hosts import ARTIFACTS, FleetHost, read_hosts
from apiary.fleet.report.inputs import directory_of
from apiary.help.bundle.masking import Masker, secret_name
from apiary.help.bundle.sources import (
    BundleHost,
    LeftOut,
    Options,
    Raw,
    SupportBundle,
    ask_hosts,
    of_artifacts,
    of_inventory,
    put,
    safe,
    saved_hosts,
)
from apiary.help.bundle.stage import Stage, write_archive
from apiary.help.doctor.command import Steps, examine, steps
from apiary.help.doctor.gather import encrypted_files, inspect_ansible, own_version
from apiary.help.doctor.inventory import Scope

MANIFEST = "MANIFEST.json"


@click.command(name="support-bundle")
@inventory_option("An Ansible inventory; repeatable. Without one only what was saved is taken.")
@click.option(
    "--host",
    "names",
    multiple=True,
    shell_complete=complete_hosts,
    help="Only this host; repeatable.",
)
@click.option(
    "--out",
    default="apiary-support.tar.gz",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The archive to write.",
)
@click.option(
    "--artifacts", type=click.Path(), help="Saved documents; else the inventory's apiary_artifacts."
)
@click.option("--offline", is_flag=True, help="Ask no host: only what was saved.")
@click.option("--since", default="24 hours ago", show_default=True, help="Of journals.")
@click.option(
    "--lines",
    default=5000,
    show_default=True,
    type=click.IntRange(1, 200000),
    help="Of each journal, the last ones.",
)
@click.option(
    "--max-size",
    default=256,
    show_default=True,
    type=click.IntRange(1, 4096),
    help="MB of all files before they are packed.",
)
@vault_option("Opens the inventory's vaults, so that their secrets are recognised.")
@json_option
def support_bundle(out: Path, as_json: bool, **request: Any) -> int:
    """Collect what somebody who helps you needs to see, secrets removed.

    Evidence, plans, units as planned and as installed, journals of replicas and router, states,
    versions, the ledger, and what `apiary doctor` says; of hosts that do not answer, what was
    saved.

    Only documents on a list are taken, which Apiary wrote or which have no secrets by what they
    are; MANIFEST.json in the archive lists all that was left out. The secrets of the inventory, its
    vaults, this shell's environment and the hosts' credentials are removed by their value wherever
    they stand. Look through it before you send it: only you know all secrets.

    \b
    apiary support-bundle --inventory inventory/mine
    apiary support-bundle -i inventory/mine --host gpu-001 --since "2 hours ago"
    apiary support-bundle -i inventory/mine --offline
    tar -tzf apiary-support.tar.gz                    what is in it

    Exit code 0: written; 1: it could not be, or a file was left out for a secret; 2: wrong usage.
    """
    options = Options(**request)
    with (
        on_signals(_abort, signal.SIGTERM, signal.SIGHUP),
        steps(quiet=as_json) as step,
        tempfile.TemporaryDirectory(prefix="apiary-bundle-") as directory,
    ):
        manifest, files = collect(options, Path(directory), step)
        step("packing")
        size = write_archive(out, files)
    if as_json:
        output.print_document({**to_document(manifest), "file": str(out)})
    else:
        output.echo(_told(manifest, out, size))
    output.report(manifest.findings, as_json)
    return output.exit_code(manifest.findings)


def _abort() -> None:
    """End the command as Ctrl-C does: what is not clean yet is deleted."""
    raise click.Abort


def collect(options: Options, work: Path, step: Steps) -> tuple[SupportBundle, dict[str, Path]]:
    """Return the manifest and the cleaned files by their path; raise BUNDLE-NOTHING and others."""
    step("secrets")
    masker = Masker(known_secrets(options.sources, options.vault))
    hosts, directory = _hosts(options)
    folders = {
        safe(host.name): directory_of(host, None if not options.artifacts else directory)
        for host in hosts
    }
    raw = work / "raw"
    raw.mkdir(mode=0o700)
    matches: list[Raw | LeftOut | BundleHost] = [
        *of_artifacts(directory, folders),
        *of_inventory(options.sources),
        *_of_controller(options, raw, step),
    ]
    if options.sources and not options.offline:
        names = [host.name for host in hosts]
        counted = step("asking the hosts", len(names))
        matches += list(ask_hosts(options, names, raw, counted, masker.know))
    else:
        matches += [BundleHost(host.name, asked=False, answered=False) for host in hosts]
    stage = Stage(work / "clean", masker, options.most)
    stage.directory.mkdir(mode=0o700)
    raws = [item for item in matches if isinstance(item, Raw)]
    stage.take(raws, step("removing secrets", len(raws)))
    stage.leave_out([item for item in matches if isinstance(item, LeftOut)])
    answers = [item for item in matches if isinstance(item, BundleHost)]
    return _manifest(stage, answers, options), stage.files


def _hosts(options: Options) -> tuple[list[FleetHost], Path]:
    """Return the hosts that are requested, and where their documents are."""
    if options.sources:
        limit = ",".join(options.names) or None
        hosts = list(read_hosts(options.sources, limit, "all", options.vault).hosts)
        return hosts, Path(options.artifacts or (hosts[0].artifacts if hosts else ARTIFACTS))
    directory = Path(options.artifacts or ARTIFACTS)
    saved = [FleetHost(name, artifacts=str(directory)) for name in saved_hosts(directory)]
    if not saved:
        raise error(
            "BUNDLE-NOTHING", str(directory), "has no saved documents, and no inventory was given"
        )
    hosts = [item for item in saved if not options.names or item.name in options.names]
    if not hosts:
        raise error(
            "BUNDLE-NOTHING", ", ".join(options.names), f"{directory} has no documents of it"
        )
    return hosts, directory


def _of_controller(options: Options, work: Path, step: Steps) -> Iterable[Raw | LeftOut]:
    """Yield what this machine says of itself."""
    ansible = inspect_ansible()
    yield put(work, "controller/ansible.json", dumps(ansible), "controller")
    try:
        scope = Scope(options.sources, ",".join(options.names) or None, options.vault)
        manifest = examine(scope, False, options.artifacts, step)
        yield put(work, "controller/doctor.json", dumps(manifest), "apiary doctor")
    except ApiaryError as refusal:
        yield LeftOut("controller/doctor.json", refusal.findings[0].message)


def _manifest(stage: Stage, answers: Sequence[BundleHost], options: Options) -> SupportBundle:
    """Return the manifest, which is a member itself."""
    masker = stage.masker
    findings = list(stage.findings)
    silent = [item for item in answers if item.asked and not item.answered]
    cleaned = [
        BundleHost(stage.clean(item.host), item.asked, item.answered, stage.clean(item.why))
        for item in answers
    ]
    for item in silent:
        findings.append(
            Finding(
                "BUNDLE-HOST",
                stage.clean(item.host),
                f"did not answer, so only what was saved is there: {stage.clean(item.why)}",
            )
        )
    if masker.short:
        findings.append(
            Finding(
                "BUNDLE-SHORT",
                f"{masker.short} secrets",
                "are shorter than 4 characters or a common word, so they were not removed",
            )
        )
    large = sum("as large as it may be" in item.why for item in stage.left_out)
    if large:
        findings.append(
            Finding(
                "BUNDLE-SIZE",
                f"{large} files",
                f"were left out, because the others have {options.most >> 20} MB already",
            )
        )
    manifest = SupportBundle(
        apiary=own_version() or "unknown",
        hosts=tuple(sorted(cleaned, key=lambda item: item.host)),
        members=tuple(sorted(stage.members, key=lambda item: item.path)),
        removed=dict(sorted(masker.counts.items())),
        looked_for=masker.supported,
        left_out=tuple(sorted(set(stage.left_out), key=lambda item: (item.what, item.why))),
        findings=tuple(findings),
    )
    stage.put(MANIFEST, dumps(manifest), "the manifest")
    return manifest


def _told(manifest: SupportBundle, out: Path, size: int) -> str:
    answered = sum(host.answered for host in manifest.hosts)
    answers = f", {answered} of them answered" if any(host.asked for host in manifest.hosts) else ""
    removed = ", ".join(f"{count} {kind}" for kind, count in manifest.removed.items()) or "nothing"
    return "\n".join(
        (
            f"{out}: {len(manifest.members)} files of {len(manifest.hosts)} hosts{answers},"
            f" {size / 2**20:.1f} MB",
            f"removed: {removed} ({manifest.looked_for} secrets masked by value)",
            f"left out: {len(manifest.left_out)}; why is in {MANIFEST}",
            f"Look through it before you send it: tar -xzf {out} -O {MANIFEST}",
        )
    )


# Files that hold one token each, of this user.
_TOKENS = ("~/.cache/huggingface/token", "~/.huggingface/token")


def known_secrets(sources: Sequence[str], vault: Sequence[str]) -> list[str]:
    """Return every secret of the inventory, of the vault's password files and the environment.

    Raises BUNDLE-VAULT where the inventory cannot be read: its secrets would not be recognised.
    """
    matches = [value for name, value in os.environ.items() if secret_name(name)]
    for name in (*vault, os.environ.get("ANSIBLE_VAULT_PASSWORD_FILE", ""), *_TOKENS):
        path = Path(name.rpartition("@")[2]).expanduser()
        if name and path.is_file() and not os.access(path, os.X_OK):
            matches.append(path.read_text(encoding="utf-8", errors="replace"))
    return [*matches, *(_of_inventory(sources, vault) if sources else ())]


def secret_variables() -> list[str]:
    """Return the names of variables that the roles and Ansible keep secret."""
    named = list(knowledge("variables.yml")["secrets"])
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        options = read_role(path.parents[1].name).options
        named += [name for name, option in options.items() if option.get("no_log")]
    return sorted(set(named))


def _of_inventory(sources: Sequence[str], vault: Sequence[str]) -> list[str]:
    whole, _partly = encrypted_files(sources)
    names = knowledge("secrets.yml")["names"]
    request = {
        "sources": list(sources),
        "secrets": {
            "vaulted": whole,
            "variables": secret_variables(),
            "secret": names["secret"],
            "innocent": names["innocent"],
        },
    }
    answer, _printed = ask_ansible(request, vault)
    if answer["error"]:
        raise error(
            "BUNDLE-VAULT",
            ", ".join(sources),
            f"its secrets cannot be read, so nobody could take them out: {answer['error'][-600:]}",
        )
    secrets: list[str] = answer["secrets"]
    return secrets
