# SPDX-License-Identifier: GPL-3.0-or-later

"""An engine's image by digest, pulled by Podman or Docker; with state absent it is removed.

An image that containers use is not removed, and reported: the next run removes it.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from ..finding import Finding
from . import engines
from .types import Difference, Host, Resource

NAMED_BY = "reference"
OPTIONS: dict[str, Any] = {
    "reference": {"type": "str", "required": True},
    "program": {"type": "str", "choices": ["podman", "docker"], "required": True},
    "version": {"type": "str"},
    "credentials": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


def inspect(host: Host, resource: Resource) -> Difference:
    program, reference = resource["program"], resource["reference"]
    # In check mode another role may still have to bring the program.
    there = shutil.which(program) is not None and not host.run([program, *_INSPECT, reference])[0]
    record = engines.read_record(reference)
    if resource["state"] == "absent":
        return Difference(steps=(f"remove the image {reference}",) if record else ())
    if there and record and record.get("complete"):
        return Difference()
    return Difference(steps=(f"pull {reference}",))


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    program, reference = resource["program"], resource["reference"]
    if resource["state"] == "absent":
        code, _out, err = host.run([program, "rmi", reference])
        if code and not host.run([program, *_INSPECT, reference])[0]:
            words = err.strip()[-engines.LAST_WORDS :]
            host.warn(Finding("ENGINE-IMAGE-USED", reference, f"was not removed: {words}"))
            return
        engines.remove_record(reference)
        return
    engines.write_record(reference, kind="image", complete=False, program=program)
    with engines.secret_file(host, resource["credentials"]) as config:
        argv = [program, "pull", "--quiet", reference]
        if config:
            place = os.path.dirname(config)
            docker = [program, f"--config={place}", *argv[1:]]
            argv = docker if program == "docker" else [*argv[:3], f"--authfile={config}", reference]
        engines.run(host, reference, argv)
    run = [program, "run", *_ALONE, "--entrypoint=python3", reference]
    engines.write_record(
        reference,
        kind="image",
        complete=True,
        program=program,
        version=resource["version"],
        facts=engines.facts_of(host, run),
    )


# What an image says of itself takes none of the host's rights.
_ALONE = ("--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--user=65534:65534")
_INSPECT = ("image", "inspect", "--format={{.Id}}")
