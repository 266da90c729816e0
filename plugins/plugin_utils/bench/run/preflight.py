# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a benchmark can begin: evaluates what bench_look saw of servers, metrics and client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ...findings import Finding, error, stop_on_errors

VERSION = re.compile(r"\b(\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?)")


@dataclass(frozen=True)
class Seen:
    """What is known once a benchmark can begin: the model served, versions, the load host."""

    model: str
    version: str | None
    client_version: str | None
    host: dict[str, Any]
    findings: tuple[Finding, ...] = ()


def plain_addresses(urls: Iterable[str]) -> None:
    """Refuse addresses that are none, or that have a secret in them, with BENCH-URL.

    They are written into every result and stand in the client's arguments.
    """
    for url in urls:
        try:
            parts = urlsplit(url)
            host, secret = parts.hostname, "@" in parts.netloc
        except ValueError:
            host, secret = None, "@" in url
        if secret:
            raise error(
                "BENCH-URL",
                host or "an address",
                "its URL has a name or password in it, which every result would show",
            )
        if not host or parts.scheme not in ("http", "https"):
            raise error("BENCH-URL", url, "is no URL")


def evaluate_inspection(
    inspection: dict[str, Any], model: str, backend: str, known: str | None = None
) -> Seen:
    """Return what was seen; ``model`` may be empty: then it is the one that is served.

    ``known`` is the client's version where it is given, so that it was not asked.

    Raises ApiaryError with BENCH-UNREACHABLE, -MODEL, -USAGE, -METRICS or -CLIENT, one finding
    for each server or program that is wrong.
    """
    findings: list[Finding] = []
    names: list[str] = []
    versions: list[str] = []
    for server in inspection["servers"]:
        found, name, version = _server(server, model)
        findings += found
        names += [name] if name else []
        versions += [version] if version else []
    if len(set(names)) > 1:
        findings.append(
            Finding(
                "BENCH-MODEL",
                ", ".join(server["url"] for server in inspection["servers"]),
                f"serve several models, {', '.join(sorted(set(names)))}; a level is of one",
            )
        )
    if not any(one.code == "BENCH-UNREACHABLE" for one in findings):
        unread = (url for url, readable in inspection["metrics"].items() if not readable)
        message = "has no metrics that the load host could read"
        findings += (Finding("BENCH-METRICS", url, message) for url in unread)
    version = versions[0] if versions else None
    client, client_version = _client(
        inspection["client"], known, version if backend == "vllm" else None
    )
    findings += client
    if backend == "vllm" and version is None:
        findings.append(
            Finding(
                "BENCH-SERVER-VERSION",
                inspection["servers"][0]["url"],
                "tells no version, as a router may; the load generator's own is used",
            )
        )
    stop_on_errors(findings)
    return Seen(names[0], version, client_version, inspection["host"], tuple(findings))


def _server(server: dict[str, Any], model: str) -> tuple[list[Finding], str, str | None]:
    """Return what is wrong with one server, its model's name and its version."""
    url = server["url"]
    status, text = server["models"]
    if status is None or status >= 500:
        why = f"does not answer the load host: {text if status is None else f'status {status}'}"
        return [Finding("BENCH-UNREACHABLE", url, why)], "", None
    if status in (401, 403):
        return [Finding("BENCH-KEY", url, f"refuses the request: status {status}")], "", None
    served = _ids(text)
    name = model or (served[0] if served else "")
    findings = []
    if name not in served:
        models = ", ".join(served) or "none"
        hint = "; leave out /v1 at its end" if url.rstrip("/").endswith("/v1") else ""
        findings.append(
            Finding("BENCH-MODEL", url, f"serves {models}, expected {name or 'a model'}{hint}")
        )
    else:
        findings += _completion(url, *server["completion"])
    version = _json(server["version"][1]).get("version") if server["version"][0] == 200 else None
    return findings, name, version if isinstance(version, str) else None


def _completion(url: str, status: int | None, text: str) -> Iterator[Finding]:
    """Yield what is wrong with the one completion that was requested."""
    if status != 200:
        why = text[:200] if status is None else f"status {status}: {text[:200]}"
        yield Finding("BENCH-UNREACHABLE", url, f"completes no prompt: {why}")
        return
    usage = _json(text).get("usage")
    if not isinstance(usage, dict) or not usage.get("prompt_tokens"):
        yield Finding("BENCH-USAGE", url, "answers without `usage`, so tokens can't be counted")


def _client(
    reported: dict[str, Any] | None, known: str | None, server: str | None
) -> tuple[list[Finding], str | None]:
    """Return what is wrong with the load generator, and its version where it was requested."""
    text = reported["text"] if reported is not None else known or ""
    lines = [line for line in text.splitlines() if line.strip()] or ["no output"]
    version = VERSION.search(lines[-1])
    if reported is None and version is None:  # command.refusal evaluates what is no version
        return [], None
    if version is None or (reported is not None and reported["exit"] != 0):
        # The last line alone may be a hint on the usage of docker.
        message = f"has no load generator that runs: {' | '.join(lines[-3:])}"
        return [Finding("BENCH-CLIENT", "the load host", message)], None
    number = version.group(1)
    if server is None or server.startswith(number):
        return [], number
    message = f"has the client of vLLM {number}, the server is {server}"
    return [Finding("BENCH-CLIENT-VERSION", "the load host", message)], number


def _ids(text: str) -> list[str]:
    listed = _json(text).get("data")
    rows = listed if isinstance(listed, list) else []
    return [str(row["id"]) for row in rows if isinstance(row, dict) and "id" in row]


def _json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
