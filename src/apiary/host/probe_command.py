# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `apiary probe`: hosts in, an evidence file of each out."""

from __future__ import annotations

import platform
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text

from apiary.app import output
from apiary.app.inputs import json_option
from apiary.app.inventory import Selection, choose
from apiary.app.options import complete_hosts, inventory_option, limit_option
from apiary.app.output import echo, exit_code, file_name, grid, print_document, report, show
from apiary.host.ssh import probe as ssh


@click.command()
@click.argument("hosts", nargs=-1, shell_complete=complete_hosts)
@inventory_option("An Ansible inventory, file, directory or script; repeatable.")
@limit_option()
@click.option("--out", default="evidence", show_default=True, help="Directory for HOST.json files.")
@click.option("--user", help="Login user; else the inventory's, else ~/.ssh/config's.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="SSH port; else the inventory's, else ~/.ssh/config's.",
)
@click.option("--identity", type=click.Path(exists=True, dir_okay=False), help="Private key file.")
@click.option(
    "--known-hosts",
    type=click.Path(exists=True, dir_okay=False),
    help="Host keys to trust instead of ~/.ssh/known_hosts.",
)
@click.option("--parallel", default=64, show_default=True, type=click.IntRange(1), help="At once.")
@click.option(
    "--timeout",
    default=15.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds to connect.",
)
@json_option
def probe(
    hosts: tuple[str, ...],
    sources: tuple[str, ...],
    limit: str | None,
    out: str,
    user: str | None,
    port: int | None,
    identity: str | None,
    known_hosts: str | None,
    parallel: int,
    timeout: float,
    as_json: bool,
) -> int:
    """Gather the evidence of this machine, or of HOSTS over SSH.

    \b
    apiary probe                      this machine
    apiary probe gpu-001 gpu-002      over SSH; host keys must be known
    apiary probe --inventory inventory/example --limit rack1
    apiary probe --inventory inventory/example gpu-001 'rack2:!gpu-007'
    """
    if limit is not None and not sources:
        raise click.UsageError("--limit chooses among the hosts of an --inventory; give one")
    options = ssh.SshOptions(user, port, identity, known_hosts, timeout=timeout)
    if sources:
        chosen = choose(sources, limit, hosts, options)
    elif hosts:
        requests = [
            ssh.ProbeRequest(name, typed, options) for typed, name in ssh.labels(hosts).items()
        ]
        chosen = Selection(tuple(requests))
    else:
        chosen = Selection((ssh.ProbeRequest(platform.node().split(".")[0], None, options),))
    order = [item.name for item in chosen.requests] + [item.host for item in chosen.refused]
    files, failed = _probe(chosen, Path(out), parallel, quiet=as_json)
    failed.sort(key=lambda probed: order.index(probed.host))
    findings = list(chosen.findings)
    findings += [finding for failure in ssh.failures(failed) for finding in failure.findings]
    if as_json:
        print_document({"schema": "apiary.probe/v1", "files": files})
    else:
        why = {
            item.host: ", ".join(f.code for f in item.failure.findings)
            for item in failed
            if item.failure
        }
        rows = [(host, files.get(host) or f"failed: {why[host]}") for host in order]
        show(grid("Evidence", ("host", "file"), rows))
        if len(order) > 1:
            echo(f"{len(order)} hosts: {len(files)} probed, {len(failed)} failed")
    report(findings, as_json)
    return exit_code(findings)


def _probe(
    chosen: Selection, out: Path, parallel: int, quiet: bool
) -> tuple[dict[str, str], list[ssh.Probed]]:
    """Write each host's evidence as it comes; return the files by host, and who failed."""
    files: dict[str, str] = {}
    failed = list(chosen.refused)
    taken: set[str] = set()
    with output.progress(quiet) as progress:
        task = progress.add_task("probing", total=len(chosen.requests))
        for probed in ssh.probe_each(chosen.requests, parallel):
            if probed.bundle is None:
                failed.append(probed)
            else:
                path = out / file_name(probed.host, ".json", taken)
                write_text(path, dumps(probed.bundle))
                files[probed.host] = str(path)
            some = f", {len(failed)} failed" if failed else ""
            progress.update(task, advance=1, description=f"probing{some}")
    return files, failed
