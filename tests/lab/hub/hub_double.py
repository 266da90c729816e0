#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A double of the Hugging Face hub's HTTP API: models in memory, behind two real servers.

The hub answers questions and redirects to the store of large files, which is another server, as
the hub's is, and refuses requests that carry a token, as signed addresses do. Faults are put in by
path. Standard library, Python 3.9; `hub_double.py --port N` serves a small made-up model by itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

# The hub keeps a file as LFS by its name or size; here, by these names.
LARGE = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
PAGE = 3


@dataclass
class Fault:
    """What a path answers instead, ``times`` times: a status, or a broken body.

    ``body`` is `truncate` (closes half way), `flip` (one bit is wrong), `stall` (stops half way
    until released), `long` (a byte too many), `whole` (knows no ranges), `html`.
    """

    status: int = 0
    body: str = ""
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Asked:
    """A request that a server got."""

    path: str
    headers: dict[str, str]

    @property
    def offset(self) -> int:
        told = self.headers.get("range", "bytes=0-")
        return int(told.split("=")[1].split("-")[0])


class Double:
    """The hub, its repositories, and what was asked of it."""

    def __init__(self, port: int = 0, address: str = "127.0.0.1") -> None:
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = defaultdict(dict)
        self.refs: dict[tuple[str, str], str] = {}
        self.token: str | None = None
        self.gated = False
        self.faults: dict[str, Fault] = {}
        self.asked: list[Asked] = []
        self.stored: list[Asked] = []
        self.stalled = threading.Event()
        self.release = threading.Event()
        self.hub = serve(self, Hub, address, port)
        self.store = serve(self, Store, address, port + 1 if port else 0)
        self.endpoint = f"http://{address}:{self.hub.server_port}"
        self.cdn = f"http://{address}:{self.store.server_port}"

    def add(self, repository: str, files: dict[str, bytes], ref: str = "main") -> str:
        """Add a commit and let a branch point to it; return its name."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()  # noqa: S324
        self.repositories[repository][commit] = files
        self.refs[repository, ref] = commit
        return commit

    def close(self) -> None:
        self.release.set()
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()

    def fault(self, path: str, has_content: bool) -> Fault:
        """Return the fault of a path, if it has one left; a broken body needs a body."""
        for end, fault in self.faults.items():
            if path.endswith(end) and fault.times > 0 and (has_content or not fault.body):
                fault.times -= 1
                return fault
        return Fault()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    double: Double


def serve(double: Double, handler: Any, address: str, port: int) -> Server:
    server = Server((address, port), handler)
    server.double = double
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324


def entry(path: str, content: bytes) -> dict[str, Any]:
    """Return a file as the tree lists it; a large file's own oid is that of its LFS pointer."""
    if not path.endswith(LARGE):
        return {"type": "file", "oid": git_sha1(content), "size": len(content), "path": path}
    sha256 = hashlib.sha256(content).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\n".encode()
    lfs = {"oid": sha256, "size": len(content), "pointerSize": len(pointer)}
    oid = git_sha1(pointer)
    return {"type": "file", "oid": oid, "size": len(content), "lfs": lfs, "path": path}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    @property
    def double(self) -> Double:
        return self.server.double

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def note(self, asked: list[Asked]) -> None:
        asked.append(Asked(self.path, {key.lower(): one for key, one in self.headers.items()}))

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def failing(self, path: str) -> Fault | None:
        """Answer with a fault's status; return the fault of the body, if it is one."""
        has_content = isinstance(self, Store) or not path.endswith(LARGE)
        fault = self.double.fault(path, has_content)
        if fault.status:
            self.answer(fault.status, fault.headers)
            return None
        return fault

    def content(self, body: bytes, headers: dict[str, str], fault: Fault) -> None:
        """Answer with a file, from the offset asked for."""
        told = None if fault.body == "whole" else self.headers.get("Range")
        first, _dash, last = told.split("=")[1].partition("-") if told else ("0", "", "")
        start, end = int(first), min(int(last or len(body)) + 1, len(body))
        if told and start >= len(body):
            self.answer(416, {"Content-Range": f"bytes */{len(body)}"})
            return
        part = body[start:end]
        if fault.body == "flip":
            part = bytes([part[0] ^ 1]) + part[1:]
        if fault.body == "long":
            part += b"x"
        ranges = {"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"} if told else {}
        if fault.body not in ("truncate", "stall") or self.command == "HEAD":
            self.answer(206 if told else 200, {**headers, **ranges}, part)
            return
        self.send_response(206 if told else 200)
        length = {"Content-Length": str(len(part))}
        for key, value in {**headers, **ranges, **length, "Connection": "close"}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(part[: len(part) // 2])
        self.wfile.flush()
        if fault.body == "stall":
            self.double.stalled.set()
            self.double.release.wait(60)
        self.close_connection = True


class Hub(Handler):
    """The API and the small files."""

    def do_GET(self) -> None:
        self.note(self.double.asked)
        address = urlsplit(self.path)
        fault = self.failing(address.path)
        if fault is None:
            return
        if fault.body == "html":
            self.answer(200, {"Content-Type": "text/html"}, b"<html>Please log in</html>")
            return
        told = self.headers.get("Authorization")
        if self.double.token and told != f"Bearer {self.double.token}":
            self.answer(401, {"X-Error-Code": "RepoNotFound"})
            return
        if self.double.gated:
            self.answer(403, {"X-Error-Code": "GatedRepo"})
            return
        self.find(address.path, parse_qs(address.query), fault)

    def find(self, path: str, query: dict[str, list[str]], fault: Fault) -> None:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        api = parts[:2] == ["api", "models"]
        repository = "/".join(parts[2:4] if api else parts[:2])
        verb, revision, *rest = (parts[4:] if api else parts[2:]) or ["revision", "main"]
        commits = self.double.repositories.get(repository)
        if commits is None:
            self.answer(404, {"X-Error-Code": "RepoNotFound"})
            return
        commit = self.double.refs.get((repository, revision), revision)
        if commit not in commits:
            self.answer(404, {"X-Error-Code": "RevisionNotFound"})
            return
        if verb == "revision":
            body = json.dumps(
                {
                    "id": repository,
                    "sha": commit,
                    "siblings": [{"rfilename": name} for name in sorted(commits[commit])],
                }
            )
            self.answer(200, {"Content-Type": "application/json"}, body.encode())
        elif verb == "tree":
            self.tree(path, commits[commit], int(query.get("cursor", ["0"])[0]))
        else:
            self.resolve(commit, "/".join(rest), commits[commit], fault)

    def tree(self, path: str, files: dict[str, bytes], start: int) -> None:
        """Answer with a page of the listing."""
        entries: list[dict[str, Any]] = [entry(name, one) for name, one in sorted(files.items())]
        folders = sorted({name.rpartition("/")[0] for name in files} - {""})
        entries += [
            {"type": "directory", "oid": "0" * 40, "size": 0, "path": one} for one in folders
        ]
        headers = {"Content-Type": "application/json"}
        if start + PAGE < len(entries):
            following = f"{self.double.endpoint}{path}?recursive=true&cursor={start + PAGE}"
            headers["Link"] = f'<{following}>; rel="next"'
        self.answer(200, headers, json.dumps(entries[start : start + PAGE]).encode())

    def resolve(self, commit: str, name: str, files: dict[str, bytes], fault: Fault) -> None:
        """Answer with a small file, or point to a large one."""
        if name not in files:
            self.answer(404, {"X-Error-Code": "EntryNotFound"})
            return
        content, listed = files[name], entry(name, files[name])
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if "lfs" not in listed:
            self.content(content, {**headers, "ETag": f'"{listed["oid"]}"'}, fault)
            return
        sha256 = listed["lfs"]["oid"]
        linked = {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{sha256}"'}
        target = f"{self.double.cdn}/{sha256}/{name.rpartition('/')[2]}?signature=secret"
        self.answer(302, {**headers, **linked, "Location": target})


class Store(Handler):
    """The large files, by hash."""

    def do_GET(self) -> None:
        self.note(self.double.stored)
        address = urlsplit(self.path)
        if "Authorization" in self.headers:
            self.answer(400, {})
            return
        fault = self.failing(address.path)
        if fault is None:
            return
        sha256 = address.path.split("/")[1]
        for commits in self.double.repositories.values():
            for files in commits.values():
                for content in files.values():
                    if hashlib.sha256(content).hexdigest() == sha256:
                        self.content(content, {"ETag": f'"{sha256}"'}, fault)
                        return
        self.answer(403, {})


def model(size: int = 300_000, seed: bytes = b"bee") -> dict[str, bytes]:
    """Return the files of a made-up model: two shards, and formats that repeat them."""

    def noise(name: str, count: int) -> bytes:
        block = hashlib.sha512(seed + name.encode()).digest()
        return (block * (count // len(block) + 1))[:count]

    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    return {
        ".gitattributes": b"*.safetensors filter=lfs\n",
        "config.json": b'{"model_type": "qwen3"}\n',
        "empty.txt": b"",
        **{name: noise(name, size) for name in names},
        "original/consolidated.00.pth": noise("pth", size),
        "pytorch_model.bin": noise("bin", size),
        "tokenizer/vocab.json": b"{}\n",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--repository", default="apiary-lab/tiny")
    parser.add_argument("--token-file", help="answer only to the token that this file holds")
    arguments = parser.parse_args()
    double = Double(arguments.port)
    if arguments.token_file:
        with open(arguments.token_file, encoding="ascii") as stream:
            double.token = stream.read().strip() or None
    for seed in (b"first", b"second", b"third"):
        commit = double.add(arguments.repository, model(seed=seed), ref=seed.decode())
        print(seed.decode(), commit, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
