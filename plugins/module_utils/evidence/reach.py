# SPDX-License-Identifier: GPL-3.0-or-later

"""Try from a host what a run will need of others: addresses, ports, repositories, exports.

Each trial is an entry of the evidence like a command's, "KIND TARGET" by name: exit 0 where it
answered, else its reason in stderr. Nothing stays on the host.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable
from urllib.error import HTTPError

from ansible.module_utils.urls import open_url

from .host import without_credentials
from .sources import find_tool

Answer = tuple[int, str, str]
Run = Callable[[list[str]], Any]

SECONDS = 10
WORKERS = 8
# Who asks for a login, or knows no HEAD, is there.
_THERE = (401, 405)
_URI = re.compile(r"^'((?:https?|ftp)://[^'\s]+InRelease)'", re.MULTILINE)
_APT = ("-oAcquire::http::Timeout=10", "-oAcquire::https::Timeout=10", "-oAcquire::Retries=0")
_APT_HELPER = "/usr/lib/apt/apt-helper"
# What decides whether a server grants a mount; the others are of speed.
_NFS = re.compile(r"(?:vers|nfsvers|minorversion|sec|port|proto|mountport|mountproto)=[\w:.]+")


def reach(run: Run, trials: Sequence[dict[str, str]]) -> dict[str, dict[str, Any]]:
    """Return the entry of each trial; ``run`` is evidence.gpu.run_command."""
    kinds: dict[str, Callable[[Run, str], Answer]] = {
        "url": _url,
        "registry": _registry,
        "tcp": _tcp,
        "path": _path,
        "nfs": _nfs,
        "apt": _apt,
    }

    def one(trial: dict[str, str]) -> tuple[str, dict[str, Any]]:
        kind, target = trial["kind"], trial["target"]
        begun = time.monotonic()
        code, out, err = kinds[kind](run, target)
        argv = [kind, without_credentials(target)]
        entry = {
            "argv": argv,
            "exit": code,
            "stdout": without_credentials(out),
            "stderr": without_credentials(err),
            "seconds": round(time.monotonic() - begun, 3),
        }
        return " ".join(argv), entry

    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(pool.map(one, trials))


def _url(_run: Run, target: str) -> Answer:
    """Ask by HEAD, through the proxy of the environment."""
    if target.startswith(("/", "file:")):
        return _path(_run, "/" + target.partition(":")[2].lstrip("/") if ":" in target else target)
    try:
        response = open_url(target, method="HEAD", timeout=SECONDS, http_agent="apiary")
    except HTTPError as answer:
        return int(answer.code not in _THERE), str(answer.code), f"HTTP {answer.code}"
    except (OSError, ValueError) as failure:
        return 1, "", str(getattr(failure, "reason", failure))
    return 0, str(response.getcode()), ""


def _registry(run: Run, target: str) -> Answer:
    """Ask a registry by HTTPS, then as an insecure one by HTTP; the first reason counts."""
    first = _url(run, f"https://{target}/v2/")
    return first if first[0] == 0 or _url(run, f"http://{target}/v2/")[0] else (0, "http", "")


def _tcp(_run: Run, target: str) -> Answer:
    host, _colon, port = target.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS):
            return 0, "", ""
    except OSError as failure:
        name = errno.errorcode.get(failure.errno or 0, "")
        return 1, name, failure.strerror or str(failure)


def _path(_run: Run, target: str) -> Answer:
    return (0, "", "") if os.path.exists(target) else (1, "", "is not there")


def _nfs(run: Run, target: str) -> Answer:
    """Mount an export read-only for a moment; who may not, or can't, asks the server's port."""
    source, _space, options = target.partition(" ")
    given = [word for word in options.split(",") if _NFS.fullmatch(word)]
    if find_tool("mount.nfs") is None or os.geteuid() != 0:
        ports = [word[5:] for word in given if word.startswith("port=")]
        return _tcp(run, f"{source.rpartition(':/')[0]}:{(ports or ['2049'])[0]}")
    words = ",".join(["ro", "soft", "timeo=50", "retrans=1", "retry=0", *given])
    place = tempfile.mkdtemp(prefix="apiary-export-")
    try:
        code, out, err, problem = run(["mount", "-t", "nfs", "-o", words, source, place])
        if code == 0:
            run(["umount", "-l", place])
        return (0, "", "") if code == 0 else (1, "", problem or _text(err or out))
    finally:
        os.rmdir(place)


def _apt(run: Run, _target: str) -> Answer:
    """Fetch what signs each of apt's repositories as apt does, through its own proxies."""
    code, out, err, problem = run(["apt-get", "--print-uris", "update"])
    if problem == "not found":
        return 0, "", ""  # a host of dnf
    if code != 0:
        return 1, "", problem or _text(err)
    answered: list[str] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="apiary-apt-") as place:
        for number, uri in enumerate(dict.fromkeys(_URI.findall(_text(out)))):
            file = os.path.join(place, str(number))
            code, _out, err, problem = run([_APT_HELPER, *_APT, "download-file", uri, file])
            why = problem or _text(err).rpartition("\n")[2]
            (failed if code else answered).append(f"{uri}: {why}" if code else uri)
    return int(bool(failed)), "\n".join(answered), "\n".join(failed)


def _text(data: Any) -> str:
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
    return text.strip()[-4000:]
