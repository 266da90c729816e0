# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes secrets out of texts by their exact value, in the forms that programs write: no I/O."""

from __future__ import annotations

import base64
import functools
import html
import json
import re
import shlex
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, knowledge

# What is shorter would be removed everywhere.
SHORTEST = 4
# So would such a word be; the marks themselves have to stay, too.
_WORD = re.compile(r"(?i:none|null|true|false|yes|no|removed|value|pattern|environment)")
_ENVIRONMENT = re.compile(r"(?m)^(?P<key>[ \t]*Environment=)(?P<rest>(?:[^\n]*\\\n)*[^\n]*)$")
_LONG_LINE = 16


def marked(kind: str) -> str:
    """Return what stands in the place of a secret."""
    return f"[removed:{kind}]"


@functools.cache
def _knowledge() -> Mapping[str, Any]:
    table: Mapping[str, Any] = knowledge("secrets.yml")
    return table


@functools.cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(entry["pattern"]) for entry in _knowledge()["tokens"])


def secret_name(name: str) -> bool:
    """Return whether a variable's value is a secret, by the words in its name."""
    names = _knowledge()["names"]
    return bool(re.search(names["secret"], name)) and not re.search(names["innocent"], name)


def forms(value: str) -> Iterator[str]:
    """Yield one secret as programs write it: verbatim, escaped, URL-encoded, in base64, in hex.

    Escapes are those of JSON (within a string of another, and of a third), YAML, shells, systemd,
    Python and HTML. Base64 may begin before the secret, as in that of USER:PASSWORD.
    """
    yield value
    level = [value]
    for _depth in range(3):
        level = [
            json.dumps(text, ensure_ascii=sign)[1:-1] for text in level for sign in (True, False)
        ]
        yield from level
    for unicode in (True, False):
        quoted = yaml.safe_dump(value, default_style='"', width=10**6, allow_unicode=unicode)
        yield quoted.strip()[1:-1]
    yield value.replace("'", "''")
    yield shlex.quote(value).strip("'")
    yield repr(value)[1:-1]
    yield re.sub(r'([\\"])', r"\\\1", value).replace("%", "%%").replace("$", "$$")
    yield from (html.escape(value), html.escape(value, quote=False))
    for encode in (functools.partial(urllib.parse.quote, safe=""), urllib.parse.quote):
        encoded = encode(value)
        yield from (encoded, re.sub("%..", lambda sign: sign[0].lower(), encoded))
    yield urllib.parse.quote_plus(value)
    yield urllib.parse.quote(urllib.parse.quote(value, safe=""), safe="")
    content = value.encode("utf-8", "surrogatepass")
    yield from (content.hex(), content.hex().upper())
    encoders: tuple[Callable[[bytes], bytes], ...] = (base64.b64encode, base64.urlsafe_b64encode)
    for encoder in encoders:
        for offset, first in enumerate((0, 2, 3)):
            # The signs that depend on the secret alone, not on what is beside it.
            encoded = encoder(b"\0" * offset + content).decode()
            core = encoded[first : 8 * (offset + len(content)) // 6]
            yield from (core, urllib.parse.quote(core, safe=""))


class Masker:
    """Removes secrets and counts what it removed, by kind; no value is ever shown."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self.short = 0
        self._values: set[str] = set()
        self._forms: list[str] = []
        self.know(values)

    def know(self, values: Iterable[str]) -> None:
        """Mask these values from now on; long lines of a longer text count one by one as well."""
        for value in values:
            stripped = value.strip()
            if 0 < len(stripped) < SHORTEST or _WORD.fullmatch(stripped):
                self.short += 1
                continue
            lines = [line.strip() for line in stripped.splitlines()]
            self._values |= {stripped, *(line for line in lines if len(line) >= _LONG_LINE)}
        self._values.discard("")
        every = {form for value in self._values for form in forms(value) if len(form) >= SHORTEST}
        # The longest first: one may be the beginning of another.
        self._forms = sorted(every, key=lambda form: (-len(form), form))

    @property
    def supported(self) -> int:
        """Return how many secrets are masked by their value."""
        return len(self._values)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for form in self._forms:
            if form in text:
                self.counts["value"] += text.count(form)
                text = text.replace(form, marked("value"))
        for pattern in _patterns():
            text = pattern.sub(self._replaced, text)
        return text

    def unit(self, text: str) -> str:
        """Return a unit without secrets; of its environment only what cannot be one stays."""
        return self.text(_ENVIRONMENT.sub(self._environment, text))

    def document(self, data: Any) -> Any:
        """Return the data of a JSON document without secrets; its shape stays."""
        if isinstance(data, Mapping):
            return {self.text(str(key)): self.document(value) for key, value in data.items()}
        if isinstance(data, (list, tuple)):
            return [self.document(value) for value in data]
        if isinstance(data, str):
            return self.text(data)
        number = isinstance(data, (int, float)) and not isinstance(data, bool)
        if number and str(data) in self._values:
            self.counts["value"] += 1
            return marked("value")
        return data

    def leaks(self, text: str) -> bool:
        """Return whether a secret is in a text in any of its forms."""
        return any(form in text for form in self._forms)

    def _replaced(self, match: re.Match[str]) -> str:
        begin, end = match.span("secret" if "secret" in match.re.groupindex else 0)
        if match[0][begin - match.start() :].startswith("[removed:"):
            return match[0]
        self.counts["pattern"] += 1
        start = match.start()
        return match[0][: begin - start] + marked("pattern") + match[0][end - start :]

    def _environment(self, match: re.Match[str]) -> str:
        try:
            assignments = shlex.split(match["rest"].replace("\\\n", " "))
        except ValueError:
            assignments = ["?=?"]
        shown = []
        for assignment in assignments:
            name, sign, _value = assignment.partition("=")
            if sign and not re.fullmatch(_knowledge()["environment"], name):
                self.counts["environment"] += 1
                assignment = f"{name}={marked('environment')}"
            shown.append(assignment)
        if not any(marked("environment") in assignment for assignment in shown):
            return match[0]
        return match["key"] + " ".join(json.dumps(each, ensure_ascii=False) for each in shown)


def clean_json(masker: Masker, text: str) -> str:
    """Return a JSON text without secrets, sorted and indented; raise ValueError for no JSON."""
    return dumps(masker.document(json.loads(text)))
