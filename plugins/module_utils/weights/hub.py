# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of the Hugging Face hub's HTTP API that fetching a pinned revision needs.

A commit's name, its files with their hashes, and their bytes from an offset on. What may pass if
asked again is TransientError; everything else is an ApiaryError.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import stat
import urllib.error
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import quote, urljoin, urlsplit

from ansible.module_utils.urls import Request, make_context

from ..finding import ApiaryError, error
from .manifest import COMMIT, SHA256, safe_path

REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 6
# A listing is JSON of some 300 bytes a file, a thousand files a page.
LISTING_LIMIT = 64 * 2**20
PAGES = 1000
LOOPBACK = ("localhost", "127.0.0.1", "::1")
NEXT = re.compile(r'<([^<>]+)>\s*;[^,<]*\brel="?next"?')
RESET = re.compile(r"\bt=(\d+)")
# Statuses that asking again does not change.
NOT_FOUND = ("WEIGHTS-FETCH-NOT-FOUND", "no such repository, revision or file")
FINAL = {
    401: ("WEIGHTS-FETCH-UNAUTHORIZED", "{token}, or there is no such repository"),
    403: ("WEIGHTS-FETCH-FORBIDDEN", "the token's owner has no access"),
    404: NOT_FOUND,
    410: NOT_FOUND,
}
# What one connection may throw, beside the status: HTTPException is no OSError.
BROKEN = (OSError, http.client.HTTPException)


class TransientError(Exception):
    """What may pass: ``final`` is what to report if it does not, ``wait`` seconds if it says so."""

    def __init__(self, final: ApiaryError, wait: float | None = None) -> None:
        super().__init__(str(final))
        self.final = final
        self.wait = wait


class BeyondError(Exception):
    """The requested offset lies beyond the file's end."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a revision: bytes, and the SHA-256 or the git blob's SHA-1 that its source reports.

    The hub knows a SHA-256 for large files (LFS, Xet) and the git name for all others.
    """

    path: str
    size: int
    sha256: str | None = None
    git_sha1: str | None = None


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port: where a token may go."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def shown(url: str) -> str:
    """Return an address without its query, which may be a signature, and without a password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def read_token(path: str) -> str:
    """Return the token that a file holds."""
    try:
        with open(path, encoding="ascii") as stream:
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
            token = stream.read().strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise refuse_token(path, getattr(failure, "strerror", None) or "is no text") from failure
    if mode & 0o077:
        raise refuse_token(path, f"others may read it: found the mode {mode:04o}, expected 0400")
    if not token or not token.isprintable() or " " in token:
        raise refuse_token(path, "holds no token: expected one line of letters and digits")
    return token


def refuse_token(path: str, message: str) -> ApiaryError:
    """Return what is wrong with a token's file; never what it holds."""
    return error("WEIGHTS-FETCH-TOKEN", path, message)


class Hub:
    """One endpoint: the hub itself or a mirror of it, perhaps below a path."""

    def __init__(self, endpoint: str, token: str | None = None, timeout: float = 60.0) -> None:
        self.endpoint = endpoint.rstrip("/")
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise error(
                "WEIGHTS-FETCH-ENDPOINT",
                self.endpoint,
                "found no address of the hub, expected https://HOST",
            )
        if token and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise refuse_token(self.endpoint, "the token would travel unencrypted: expected https")
        self.token = token
        self.request = Request(
            timeout=timeout,
            follow_redirects="none",
            use_netrc=False,
            decompress=False,
            http_agent="apiary",
            context=make_context(),
        )

    def get(self, url: str, span: str = "") -> Any:
        """Return an open response, of a span of bytes if one is given.

        The token goes to the endpoint and to nobody it points to.
        """
        for _hop in range(MOST_REDIRECTS):
            headers = {"Accept-Encoding": "identity"}
            if span:
                headers["Range"] = f"bytes={span}"
            if self.token and origin(url) == origin(self.endpoint):
                headers["Authorization"] = f"Bearer {self.token}"
            try:
                return self.request.get(url, headers=headers)
            except urllib.error.HTTPError as failure:
                with failure:
                    target = failure.headers.get("Location")
                    if failure.code not in REDIRECTS or not target:
                        raise self.evaluate(url, failure) from None
                    target = urljoin(url, target)
                if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
                    raise refused(url, "points to an unencrypted address") from None
                url = target
            except BROKEN as failure:
                raise broken(url, failure) from failure
        raise refused(url, f"redirects more than {MOST_REDIRECTS} times")

    def evaluate(self, url: str, failure: urllib.error.HTTPError) -> Exception:
        """Return what a status means."""
        status, headers = failure.code, failure.headers
        reason = headers.get("X-Error-Code") or headers.get("X-Error-Message") or failure.reason
        found = f"found HTTP {status} ({' '.join(str(reason).split())[:120]})"
        if status == 416:
            return BeyondError()
        # A signed address of a store behind the hub expires; the hub gives a new one.
        expired = status in (401, 403) and origin(url) != origin(self.endpoint)
        if status in (408, 429) or status >= 500 or expired:
            code, message = "WEIGHTS-FETCH-SERVER", f"{found}, again and again"
            if status == 429:
                code, message = "WEIGHTS-FETCH-RATE-LIMIT", f"{found}: too many requests"
            problem = error(code, shown(url), message)
            return TransientError(problem, retry_after(headers))
        if status not in FINAL:
            return refused(url, found)
        code, message = FINAL[status]
        token = "refuses the token" if self.token else "wants a token"
        return error(code, shown(url), f"{found}: {message.format(token=token)}")

    def document(self, url: str) -> tuple[Any, str | None]:
        """Return a JSON answer, and the address of its next page."""
        response = self.get(url)
        with response:
            try:
                text = response.read(LISTING_LIMIT + 1)
            except BROKEN as failure:
                raise broken(url, failure) from failure
            length = response.headers.get("Content-Length", "")
            if length.isdigit() and len(text) < int(length) and len(text) <= LISTING_LIMIT:
                raise broken(url, OSError(f"closed after {len(text)} of {length} bytes"))
            more = NEXT.search(response.headers.get("Link") or "")
        try:
            return json.loads(text), urljoin(url, more.group(1)) if more else None
        except ValueError:
            raise listing(url, "answers with something that is no JSON") from None

    def commit(self, repository: str, revision: str) -> str:
        """Return the commit that a branch or tag points to."""
        url = f"{self.endpoint}/api/models/{repository}/revision/{quote(revision, safe='')}"
        document, _next = self.document(url)
        found = document.get("sha") if isinstance(document, dict) else None
        if not isinstance(found, str) or not COMMIT.fullmatch(found):
            raise listing(url, f"found the commit {found!r}, expected 40 hexadecimal digits")
        return found

    def files(self, repository: str, commit: str) -> list[SourceFile]:
        """Return the files of a commit."""
        url: str | None = f"{self.endpoint}/api/models/{repository}/tree/{commit}?recursive=true"
        found: list[SourceFile] = []
        for _page in range(PAGES):
            if url is None:
                return found
            here = url
            document, url = self.document(here)
            if not isinstance(document, list):
                raise listing(here, f"found a {type(document).__name__}, expected a list of files")
            if url is not None and origin(url) != origin(self.endpoint):
                raise listing(here, "continues on another host")
            for entry in document:
                if not isinstance(entry, dict) or entry.get("type") != "directory":
                    found.append(tree_file(here, entry))
        raise listing(self.endpoint, f"the listing of {repository} has more than {PAGES} pages")

    def open_file(
        self, repository: str, commit: str, path: str, offset: int, end: int | None
    ) -> tuple[IO[bytes], int]:
        """Return a file's bytes up to an end, and the offset from which on they are.

        A server that knows no ranges gives all, from 0 on.
        """
        url = f"{self.endpoint}/{repository}/resolve/{commit}/{quote(path)}"
        span = f"{offset}-" if end is None else f"{offset}-{end - 1}"
        try:
            response = self.get(url, span if offset or end is not None else "")
        except BeyondError:
            # What is at hand is longer than the file: begin anew.
            response = self.get(url)
        start = 0
        if response.status == 206:
            told = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
            if not told or int(told.group(1)) != offset:
                response.close()
                raise refused(url, "answers with another range than was asked for")
            start = offset
        return response, start


def tree_file(url: str, entry: Any) -> SourceFile:
    """Return a file of a listing, checked: a path is written to, a hash is relied on."""
    lfs = entry.get("lfs") if isinstance(entry, dict) else None
    try:
        path, size = entry["path"], (lfs or entry)["size"]
        sha256, git_sha1 = (lfs["oid"], None) if lfs else (None, entry["oid"])
    except (KeyError, TypeError):
        raise listing(url, f"found {str(entry)[:80]}, expected path, size and oid") from None
    if not isinstance(path, str) or not safe_path(path):
        raise listing(url, f"{path!r} leads out of the directory or takes a reserved name")
    named = SHA256.fullmatch(str(sha256)) if lfs else COMMIT.fullmatch(str(git_sha1))
    if not isinstance(size, int) or isinstance(size, bool) or size < 0 or not named:
        raise listing(url, f"{path}: found {str(entry)[:80]}, expected its size and hash")
    return SourceFile(path, size, sha256, git_sha1)


def retry_after(headers: Any) -> float | None:
    """Return the seconds that a server requests to wait, at most five minutes."""
    told = headers.get("Retry-After") or ""
    if not told.isdigit():
        reset = RESET.search(headers.get("RateLimit") or "")
        told = reset.group(1) if reset else ""
    return min(float(told), 300.0) if told else None


def refused(url: str, message: str) -> ApiaryError:
    """Return that a request is answered in a way that asking again won't change."""
    return error("WEIGHTS-FETCH-REFUSED", shown(url), message)


def listing(url: str, message: str) -> ApiaryError:
    """Return that what the hub lists of a revision cannot be relied on."""
    return error("WEIGHTS-FETCH-LISTING", shown(url), message)


def broken(url: str, failure: Exception) -> Exception:
    """Return what a failed connection means."""
    reason = getattr(failure, "reason", failure)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return error(
            "WEIGHTS-FETCH-TLS",
            shown(url),
            f"the certificate does not hold: {reason.verify_message}",
        )
    cause = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    problem = error(
        "WEIGHTS-FETCH-NETWORK", shown(url), f"the connection fails again and again: {cause}"
    )
    return TransientError(problem)
