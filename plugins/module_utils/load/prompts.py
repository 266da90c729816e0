# SPDX-License-Identifier: GPL-3.0-or-later

"""What a load's requests say: seeded, distinct, of exact lengths, and cheap to make while it runs.

Without a tokenizer a prompt is token ids, which vLLM's /v1/completions takes as they are: its
length is exact. Chat, which images need, has words whose lengths the server's /tokenize told.
Equal loads make equal prompts, two that differ in anything share none.
"""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from dataclasses import dataclass
from typing import Any

# Ids come as ready-made runs: drawing thousands for each request would delay what is in flight.
_RUN = 64
_RUNS = 64
# A prompt's first ids are its own, so that no prefix cache knows what follows.
_HEAD = 32
_TILE = 16


@dataclass(frozen=True)
class Turn:
    """One request: the ``number``-th of its conversation, ``part`` of the workload's parts.

    ``traced`` is of a trace: when it is due, in seconds, and the tokens of prompt and answer.
    """

    conversation: int
    number: int
    part: int
    last: bool
    traced: tuple[float, int, int] | None = None


def seeded(seed: str) -> random.Random:
    """Return what draws the same for the same seed."""
    return random.Random(seed)  # noqa: S311 - nothing here is a secret


def share(total: int, shard: int, shards: int) -> int:
    """Return a shard's even share of a number."""
    return total // shards + (shard < total % shards)


def arrivals(rate: float, count: int, seed: str) -> list[float]:
    """Return when ``count`` requests arrive, seconds from the start, ``rate`` a second.

    Stretched so that the last comes at count / rate: levels differ in order, not in load.
    """
    draw = seeded(seed)
    times, now = [], 0.0
    for _number in range(count):
        now += draw.expovariate(rate)
        times.append(now)
    stretch = count / rate / now if now else 1.0
    return [one * stretch for one in times]


def seed_of(load: dict[str, Any], shard: int = 0) -> str:
    """Return the seed of a load's prompts: all that tells it from other loads, and the shard."""
    parts = [load.get(key) for key in ("phase", "concurrency", "request_rate", "requests")]
    parts += [load["workload"]["name"]]
    parts += [load.get(key, 0) for key in ("seed", "repeat", "engine_run", "attempt")]
    return json.dumps([*parts, shard])


def parts_of(workload: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a workload's requests are drawn from: its parts, or itself."""
    return list(workload.get("parts") or [workload])


def replayed(trace: list[Any], requests: int, rate: float | None) -> list[list[Turn]]:
    """Return the conversations of a trace, from its beginning again where it is too short.

    It is slowed or hastened as a whole, so that ``rate`` requests a second come.
    """
    span = (trace[-1][1] or 1.0) * len(trace) / (len(trace) - 1)
    scale = len(trace) / span / (rate or 1.0)
    found: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
    for place in range(requests):
        again, at = divmod(place, len(trace))
        session, due, prompt, answer = trace[at]
        turns = found.setdefault((again, session), [])
        turns.append((scale * (again * span + due), prompt, answer))
    return [
        [Turn(number, turn, 0, turn == len(turns) - 1, one) for turn, one in enumerate(turns)]
        for number, turns in enumerate(found.values())
    ]


def turns_of(
    workload: dict[str, Any], requests: int, seed: str, rate: float | None = None
) -> list[list[Turn]]:
    """Return the conversations of a load, each with its turns; the parts have equal shares.

    The order of the parts is drawn; all turns together are ``requests``.
    """
    if workload.get("trace"):
        return replayed(workload["trace"], requests, rate)
    parts = parts_of(workload)
    drawn: list[tuple[int, int]] = []
    for place, part in enumerate(parts):
        left, turns = share(requests, place, len(parts)), max(1, part.get("turns") or 1)
        while left > 0:
            drawn.append((place, min(turns, left)))
            left -= turns
    if len(parts) > 1:
        seeded(f"order {seed}").shuffle(drawn)
    return [
        [Turn(number, turn, place, turn == turns - 1) for turn in range(turns)]
        for number, (place, turns) in enumerate(drawn)
    ]


def input_tokens(part: dict[str, Any], turn: int) -> int:
    """Return how many tokens a turn's prompt has: the conversation so far, and as much new again.

    Each turn appends the answer before it and as many tokens as the first had beside its prefix.
    """
    fresh = part["input_tokens"] - (part.get("prefix_tokens") or 0)
    return int(part["input_tokens"] + turn * (part["output_tokens"] + fresh))


class TokenIds:
    """Prompts as texts of token ids, ``low`` to ``high``, to be put between brackets."""

    def __init__(self, seed: str, low: int, high: int) -> None:
        self._seed, self._low, self._high = seed, low, high
        draw = seeded(f"runs {seed}")
        self._runs = [self._draw(draw, _RUN) for _number in range(_RUNS)]

    def _draw(self, draw: random.Random, count: int) -> str:
        spread = self._high - self._low + 1
        return ",".join([str(self._low + int(draw.random() * spread)) for _n in range(count)])

    def text(self, name: str, count: int) -> str:
        """Return ``count`` ids; equal names get equal ones, others share no beginning."""
        if not count:
            return ""
        draw = seeded(f"{self._seed} {name}")
        runs, rest = divmod(max(0, count - _HEAD), _RUN)
        pieces = [self._draw(draw, min(count, _HEAD) + rest), *draw.choices(self._runs, k=runs)]
        return ",".join([piece for piece in pieces if piece])


class Words:
    """Prompts as words; ``units`` are texts with their lengths in tokens, ``extra`` the template's.

    They end at most one shortest unit below the length that is asked.
    """

    def __init__(self, seed: str, units: list[tuple[str, float]], extra: float) -> None:
        self._seed, self._extra = seed, extra
        self._units = sorted(units, key=_length)

    def text(self, name: str, count: int, first: bool = True) -> str:
        """Return words of ``count`` tokens, the template's included if it is the ``first`` text."""
        draw = seeded(f"{self._seed} {name}")
        left = count - (self._extra if first else 0.0)
        words: list[str] = []
        while True:
            fitting = self._units
            if left < self._units[-1][1]:
                fitting = [unit for unit in self._units if unit[1] <= left]
            if not fitting:
                return "".join(words)
            word, length = fitting[int(draw.random() * len(fitting))]
            words.append(word)
            left -= length


class Images:
    """PNG images, each with colours of its own; their shapes are drawn once for a size.

    So an image costs a palette, while every pixel of two of them differs.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._shapes: dict[tuple[int, int], bytes] = {}

    def url(self, name: str, width: int, height: int) -> str:
        """Return an image as a data URL."""
        size = (width, height)
        if size not in self._shapes:
            self._shapes[size] = _chunk(b"IDAT", _tiles(seeded(self._seed), *size))
        palette = seeded(f"{self._seed} {name}").getrandbits(768 * 8).to_bytes(768, "big")
        png = b"".join(
            (
                b"\x89PNG\r\n\x1a\n",
                _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
                _chunk(b"PLTE", palette),
                self._shapes[size],
                _chunk(b"IEND", b""),
            )
        )
        return "data:image/png;base64," + base64.b64encode(png).decode()


def _length(unit: tuple[str, float]) -> float:
    return unit[1]


def _tiles(draw: random.Random, width: int, height: int) -> bytes:
    rows = []
    for top in range(0, height, _TILE):
        colours = bytes(draw.getrandbits(8) for _left in range(0, width, _TILE))
        row = b"".join(bytes([one]) * _TILE for one in colours)[:width]
        # Each row begins with its filter: none.
        rows.append((b"\0" + row) * min(_TILE, height - top))
    return zlib.compress(b"".join(rows), 6)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
