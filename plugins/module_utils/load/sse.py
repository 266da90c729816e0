# SPDX-License-Identifier: GPL-3.0-or-later

"""An HTTP/1.1 response as its bytes come, with the times of its tokens where it is a stream.

Pure: who feeds it says the time. An OpenAI stream's chunk is parsed as JSON only where that can
matter: until the first token, and for the usage. The others are only counted, by a text that no
generated one can contain, since JSON escapes its quotes.
"""

from __future__ import annotations

import json
from typing import Any

_CHOICE = b'"choices":[{'
_MOST_HEAD = 1 << 16
# Of what is no stream: documents and metrics of engines that may be others' machines.
MOST_BODY = 1 << 24


class Response:
    """One response: feed it until ``done``; ``error`` says why it is not one, or is empty.

    ``times`` has the arrival of each chunk with a token. ``keep``: keep texts and token ids too,
    which costs a parsing of each chunk.
    """

    def __init__(self, keep: bool = False) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.times: list[float] = []
        self.usage: dict[str, Any] | None = None
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.error = ""
        self.done = False
        self.reusable = False
        self.started = False
        self.complete = False
        self._keep = keep
        self._head = True
        self._stream = False
        self._chunked = False
        self._left = -1
        self._raw = b""
        self._tail = b""
        self._last = b""
        self._body: list[bytes] = []
        self._size = 0

    @property
    def body(self) -> bytes:
        """Return the body of what was no stream."""
        return b"".join(self._body)

    def json(self) -> Any:
        """Return the body's JSON, None if it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def feed(self, data: bytes, now: float) -> None:
        """Take the next bytes, which came at ``now``."""
        self.started = True
        if self._head:
            data = self._raw + data
            self._raw = b""
            if not self._read_head(data):
                return
            data, self._raw = self._raw, b""
            if self.done or not data:
                return
        if self._chunked:
            self._dechunk(data, now)
        else:
            self._content(data if self._left < 0 else data[: self._left], now)
            if self._left >= 0:
                self._left -= len(data)
                if self._left <= 0:
                    self._finish()

    def closed(self, why: str = "") -> None:
        """Take note that the connection ended, or broke for a reason."""
        if self.done:
            return
        if not self._head and not self._chunked and self._left < 0 and not why:
            self._finish()
        else:
            part = f" after {len(self.times)} chunks" if self.times else ""
            self._fail(why or f"the connection was closed before the answer's end{part}")
        self.reusable = False

    def _fail(self, why: str) -> None:
        self.error = self.error or why
        self.done = True
        self.reusable = False

    def _read_head(self, data: bytes) -> bool:
        """Read the head if it is whole; what follows it stays in ``_raw``."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._raw = data
            if len(data) > _MOST_HEAD or not b"HTTP/1.".startswith(data[:7]):
                self._fail("the answer is no HTTP/1.1")
            return False
        lines = data[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            self._fail("the answer is no HTTP/1.1")
            return False
        self._raw = data[end + 4 :]
        if words[1].startswith("1"):
            return self._read_head(self._raw)
        self.status = int(words[1])
        for line in lines[1:]:
            name, _colon, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._head = False
        self.reusable = (
            words[0] == "HTTP/1.1" and self.headers.get("connection", "").lower() != "close"
        )
        kind = self.headers.get("content-type", "")
        self._stream = self.status == 200 and kind.startswith("text/event-stream")
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length", "")
        if self._chunked:
            self._left = 0
        elif length.isdigit():
            self._left = int(length)
            if self._left == 0:
                self._finish()
        return True

    def _dechunk(self, data: bytes, now: float) -> None:
        """Take bytes of a chunked body; the line break after a chunk is skipped before the next."""
        if self._raw:
            data, self._raw = self._raw + data, b""
        place, end = 0, len(data)
        while place < end:
            if self._left:
                piece = data[place : place + self._left]
                self._left -= len(piece)
                place += len(piece)
                self._content(piece, now)
                continue
            start = place + 2 if data.startswith(b"\r\n", place) else place
            line = data.find(b"\r\n", start)
            if line < 0:
                self._raw = data[place:]
                return
            try:
                self._left = int(data[start:line].partition(b";")[0], 16)
            except ValueError:
                self._fail("the answer's chunks are broken")
                return
            if self._left == 0:
                if data.find(b"\r\n", line + 2) < 0:
                    self._raw = data[place:]
                    return
                self._finish()
                return
            place = line + 2

    def _content(self, piece: bytes, now: float) -> None:
        if not self._stream:
            self._body.append(piece)
            self._size += len(piece)
            if self._size > MOST_BODY:
                self._fail(f"the answer is larger than {MOST_BODY >> 20} MiB")
            return
        if self._tail:
            piece, self._tail = self._tail + piece, b""
        if piece[-2:] != b"\n\n":
            if b"\r" in piece:
                # Some servers end lines so; in JSON neither of the two stands for itself.
                piece = piece.replace(b"\r\n", b"\n")
            cut = piece.rfind(b"\n\n") + 2
            if cut < 2:
                self._tail = piece
                return
            piece, self._tail = piece[:cut], piece[cut:]
        if self.times and not self._keep:
            count = piece.count(_CHOICE)
            if count and count == piece.count(b"\n\n"):
                self.times.extend([now] * count) if count > 1 else self.times.append(now)
                self._last = piece
                return
        for event in piece.split(b"\n\n"):
            if event:
                self._event(event, now)

    def _event(self, event: bytes, now: float) -> None:
        """Read one event; a comment, which begins with a colon, is a sign of engine run only."""
        lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
        if not lines:
            return
        text = b"\n".join(lines)
        if text == b"[DONE]":
            self.complete = True
            return
        try:
            document = json.loads(text)
        except ValueError:
            self._fail("a chunk of the stream is no JSON")
            return
        if not isinstance(document, dict):
            self._fail("a chunk of the stream is no object")
            return
        if document.get("error"):
            self._fail(f"the stream told an error: {reason_of(document)}")
            return
        self.usage = document.get("usage") or self.usage
        for choice in (document.get("choices") or ())[:1]:
            if has_token(choice):
                self.times.append(now)
            if self._keep:
                part = choice.get("delta") or {}
                self.texts.append(choice.get("text") or part.get("content") or "")
                self.token_ids += choice.get("token_ids") or ()

    def _finish(self) -> None:
        self.done = True
        if self._stream:
            if not self.complete:
                self._fail(f"the stream ended without [DONE] after {len(self.times)} chunks")
            elif self.usage is None and self._last:
                # Some servers tell the usage beside the last choice.
                times = self.times
                self.times = []
                self._event(self._last.rstrip(b"\n").rpartition(b"\n\n")[2], 0.0)
                self.times = times
        elif self.status != 200:
            document = self.json()
            why = reason_of(document) if isinstance(document, dict) else ""
            self.error = f"HTTP {self.status}" + (f": {why}" if why else "")


def has_token(choice: dict[str, Any]) -> bool:
    """Return whether a choice of a chunk brings a token: all do, but one that only tells the role.

    A token without text, as half of a letter is, is one too.
    """
    delta = choice.get("delta")
    if not isinstance(delta, dict) or "role" not in delta or choice.get("finish_reason"):
        return True
    return any(value for name, value in delta.items() if name != "role")


def reason_of(document: dict[str, Any]) -> str:
    """Return the message of an error's document, its first 300 characters."""
    error = document.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message or document.get("message") or "").split())[:300]
