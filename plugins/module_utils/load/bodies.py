# SPDX-License-Identifier: GPL-3.0-or-later

"""The HTTP requests of a load: what each of its turns sends, made just before it is sent."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from .http import Server
from .prompts import Images, TokenIds, Turn, Words, input_tokens, parts_of, seed_of
from .sse import Response

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
# Tried in this order where a server has no /tokenize: most vocabularies have the first.
_VOCABULARIES = ((1000, 20_000), (100, 250))
_TEXT = (
    "the quick brown fox jumps over a lazy dog while seven wise judges measure how much water "
    "flows under old stone bridges in early spring and nobody knows whether rain will come before "
    "market day begins again with apples bread cheese honey salt wool iron glass paper ink candles "
    "ships horses winter summer garden river mountain forest village kitchen window letter number "
    "question answer science history music language computer memory network engine power energy "
    "metal silver golden purple green yellow orange simple careful quiet sudden perfect ancient "
    "modern public private different important possible general certain special large small"
)
_VARIED = tuple(_TEXT.split())


@dataclass(frozen=True)
class Made:
    """One turn's request, and what it must bring.

    Another number of output tokens is an error. ``keep``: the answer is needed.
    """

    turn: Turn
    request: bytes
    input_tokens: int
    output_tokens: int
    keep: bool = False

    def without_request(self) -> Made:
        """Return it without what has been sent, which may be megabytes."""
        return replace(self, request=b"")


class Bodies:
    """Makes the requests of one load; asks the server first what it must know of its tokenizer.

    ValueError says that the server can't be asked anything.
    """

    def __init__(self, server: Server, settings: Any, headers: dict[str, str]) -> None:
        self._server, self._settings, self._headers = server, settings, headers
        load = settings.load
        self._parts = parts_of(load["workload"])
        self._seed = seed_of(load, settings.shard)
        # Prefixes are shared by all shards of a load.
        self._common = seed_of(load, -1)
        self._name = ""
        self._ids: TokenIds | None = None
        self._words: Words | None = None
        self._images = Images(self._seed)
        self._reported: dict[int, Any] = {}
        chats = [self._is_chat(part) for part in self._parts]
        if any(chats):
            units = self._units()
            self._words = Words(self._seed, *units)
            self._shared_words = Words(self._common, *units)
        if not all(chats):
            low, high = settings.vocabulary or self._vocabulary()
            self._ids = TokenIds(self._seed, low, high)
            self._shared_ids = TokenIds(self._common, low, high)

    def named(self, name: str) -> Bodies:
        """Return itself, with prompts of their own for ``name``."""
        self._name, self._reported = name, {}
        return self

    def make(self, turn: Turn) -> Made:
        """Return the request of a turn, whose conversation has its answers so far."""
        part = self._parts[turn.part]
        several = (part.get("turns") or 1) > 1
        output = turn.traced[2] if turn.traced else int(part["output_tokens"])
        chat = self._is_chat(part)
        body: dict[str, Any] = {
            "model": self._settings.model,
            "max_tokens": output,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "min_tokens": output,
            "ignore_eos": True,
        }
        if several and not chat:
            body["return_token_ids"] = True
        if chat:
            body["messages"] = self._messages(turn, part)
            data = json.dumps(body).encode()
        else:
            # The ids are text already; making numbers of them only to print them takes long.
            data = f'{json.dumps(body)[:-1]}, "prompt": [{self._prompt(turn, part)}]}}'.encode()
        headers = dict(self._headers)
        if several or part.get("kind") == "sessions":
            headers[self._settings.session_header] = self._key(turn)
        return Made(
            turn,
            self._server.request(CHAT if chat else COMPLETIONS, data, headers),
            turn.traced[1] if turn.traced else input_tokens(part, turn.number),
            output,
            keep=several and not turn.last,
        )

    def answered(self, turn: Turn, response: Response) -> None:
        """Take a turn's answer into its conversation."""
        reported = self._reported.get(turn.conversation)
        if turn.last:
            self._reported.pop(turn.conversation, None)
        elif isinstance(reported, list):
            reported.append({"role": "assistant", "content": "".join(response.texts)})
        elif isinstance(reported, str) and self._ids is not None:
            part = self._parts[turn.part]
            count = turn.traced[2] if turn.traced else int(part["output_tokens"])
            ids = response.token_ids
            # A server that tells no ids gets others in their place: of that answer it caches less.
            text = ",".join(map(str, ids)) if len(ids) == count else self._ids.text("", count)
            self._reported[turn.conversation] = f"{reported},{text}"

    def _is_chat(self, part: dict[str, Any]) -> bool:
        return self._settings.endpoint == "chat" or bool(part.get("images"))

    def _key(self, turn: Turn) -> str:
        settings = self._settings
        load = settings.load
        seed = f"{self._name}-{load.get('seed', 0)}.{load.get('attempt', 0)}-{settings.shard}"
        return f"apiary-{seed}-{turn.conversation}".replace(" ", "-")

    def _pieces(self, turn: Turn, part: dict[str, Any]) -> tuple[str, int, str, int]:
        """Return a turn's names and lengths: of its prefix, and of what is its own."""
        shared = int(part.get("prefix_tokens") or 0)
        prefix = f"prefix {turn.part} {turn.conversation % max(1, int(part.get('prefixes') or 1))}"
        own = f"{self._name} {turn.conversation} {turn.number}"
        if turn.traced:
            before = self._reported.get(turn.conversation) or ""
            fresh = turn.traced[1] - (before.count(",") + 1 if before else 0)
            if fresh <= 0:  # it lost its beginning
                self._reported.pop(turn.conversation, None)
            return prefix, 0, own, fresh if fresh > 0 else turn.traced[1]
        return prefix, shared if not turn.number else 0, own, int(part["input_tokens"]) - shared

    def _prompt(self, turn: Turn, part: dict[str, Any]) -> str:
        if self._ids is None:
            return ""
        prefix, shared, own, fresh = self._pieces(turn, part)
        pieces = [self._reported.get(turn.conversation, "")]
        pieces += [self._shared_ids.text(prefix, shared), self._ids.text(own, fresh)]
        text = ",".join([piece for piece in pieces if piece])
        if not turn.last:
            self._reported[turn.conversation] = text
        return text

    def _messages(self, turn: Turn, part: dict[str, Any]) -> list[dict[str, Any]]:
        if self._words is None:
            return []
        prefix, shared, own, fresh = self._pieces(turn, part)
        text = self._shared_words.text(prefix, shared, first=False)
        text += self._words.text(own, fresh)
        content: Any = text
        width, height = part.get("image_pixels") or (512, 512)
        urls = [
            self._images.url(f"{own} {number}", width, height)
            for number in range(int(part.get("images") or 0))
        ]
        if urls:
            images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
            content = [{"type": "text", "text": text}, *images]
        reported: list[dict[str, Any]] = self._reported.setdefault(turn.conversation, [])
        reported.append({"role": "user", "content": content})
        return reported

    def _ask(self, path: str, document: dict[str, Any]) -> Response:
        document = {"model": self._settings.model, **document}
        answer = self._server.ask(path, document, self._headers)
        if not answer.status:
            raise ValueError(f"the server does not answer: {answer.error}")
        return answer

    def _tokens(self, text: str) -> list[int]:
        requested = {"prompt": text, "add_special_tokens": False}
        document = self._ask("/tokenize", requested).json()
        tokens = document.get("tokens") if isinstance(document, dict) else None
        return tokens if isinstance(tokens, list) else []

    def _vocabulary(self) -> tuple[int, int]:
        """Return the span of ids of ordinary words: special ones lie below or above it."""
        ids = self._tokens(" ".join(_VARIED))
        if ids:
            return min(ids), max(ids)
        answer = Response()
        for low, high in _VOCABULARIES:
            answer = self._ask(COMPLETIONS, {"prompt": [low, high], "max_tokens": 1})
            if answer.status == 200:
                return low, high
        raise ValueError(f"the server takes no token ids: {answer.error}")

    def _units(self) -> tuple[list[tuple[str, float]], float]:
        """Return words with their lengths, and what the chat's template adds, by /tokenize."""
        units = [(f" {word}", float(len(self._tokens(f" {word}")))) for word in _VARIED]
        if not all(length for _word, length in units):
            raise ValueError("the server has no /tokenize, which chat needs")
        text = " ".join(_VARIED)
        message = [{"role": "user", "content": text}]
        whole = self._ask("/tokenize", {"messages": message}).json()
        count = whole.get("count") if isinstance(whole, dict) else None
        if not isinstance(count, int):
            return units, 0.0
        return units, max(0.0, float(count - len(self._tokens(text))))
