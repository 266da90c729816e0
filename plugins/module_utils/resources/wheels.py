# SPDX-License-Identifier: GPL-3.0-or-later

"""An engine of wheels in a directory of its own: a virtual environment of pinned, hashed packages.

It is made once and never changed, for replicas run from it: other pins are another directory. pip
takes wheels alone and refuses what has another hash. A directory that others made is refused.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import Any
from urllib.parse import urlsplit

from ..finding import error
from . import engines
from .types import Difference, Host, Resource

NAMED_BY = "path"
OPTIONS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "version": {"type": "str"},
    "requirements": {"type": "str"},
    "python": {"type": "str", "default": "python3"},
    "index_url": {"type": "str"},
    "wheels": {"type": "path"},
    "pip_config": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


def inspect(host: Host, resource: Resource) -> Difference:
    path, record = resource["path"], engines.read_record(resource["path"])
    if resource["state"] == "absent":
        return Difference(steps=(f"remove the engine in {path}",) if record else ())
    if record is None and os.path.lexists(path):
        raise error("ENGINE-DIRECTORY", path, "is there, and no run of Apiary made it")
    if record is None or not record.get("complete"):
        step = f"install vLLM {resource['version']} into {path}"
        return Difference(steps=(step,))
    if record.get("pins") != _digest(resource):
        message = "was installed from other pins, and replicas may run from it"
        raise error("ENGINE-PINS-CHANGED", path, message)
    return Difference()


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    path, version = resource["path"], resource["version"]
    if resource["state"] == "present":
        engines.write_record(path, kind="wheels", complete=False)
    if os.path.lexists(path):
        shutil.rmtree(path)
    if resource["state"] == "absent":
        engines.remove_record(path)
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    engines.run(host, path, [resource["python"], "-m", "venv", path])
    pins = os.path.join(path, "requirements.txt")
    with open(pins, "w", encoding="utf-8") as stream:
        stream.write(resource["requirements"])
    python = os.path.join(path, "bin/python")
    # --no-cache-dir: a second copy of some gigabytes in root's home.
    argv = [python, "-m", "pip", "install", "--no-input", "--no-cache-dir", "--progress-bar=off"]
    argv += ["--disable-pip-version-check", "--require-hashes", "--only-binary=:all:"]
    if resource["wheels"]:
        argv += [f"--find-links={resource['wheels']}"]
        argv += [] if resource["index_url"] else ["--no-index"]
    argv += [f"--index-url={resource['index_url']}"] if resource["index_url"] else []
    # pip takes nothing by plain HTTP unless told to; what is right the hashes say.
    address = urlsplit(resource["index_url"] or "")
    if address.scheme == "http":
        argv += [f"--trusted-host={address.netloc.rpartition('@')[2]}"]
    with engines.secret_file(host, resource["pip_config"]) as config:
        variables = {"PIP_CONFIG_FILE": config} if config else {}
        engines.run(host, path, [*argv, f"--requirement={pins}"], environ_update=variables)
    code, out, err = host.run([os.path.join(path, "bin/vllm"), "--version"])
    reported = (err or out if code else out).strip()[-engines.LAST_WORDS :].rpartition("\n")[2]
    # Builds add a local part, as in 0.33.0+rocm700.
    if code or reported.partition("+")[0] != version:
        message = f"`vllm --version` printed {reported!r}, expected {version}"
        raise error("ENGINE-VERSION", path, message)
    facts = engines.facts_of(host, [python])
    pins = _digest(resource)
    engines.write_record(
        path, kind="wheels", complete=True, version=version, pins=pins, facts=facts
    )


def _digest(resource: Resource) -> str:
    return hashlib.sha256(resource["requirements"].encode()).hexdigest()
