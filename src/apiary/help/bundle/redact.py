# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes secrets out of texts and documents: those that are known, and what looks like one."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge

from apiary.help.bundle.forms import SHORTEST, Form, forms
from apiary.help.bundle.lines import cut_keys, listed, named_lines

_RUN = re.compile(r"[A-Za-z0-9+/_=-]*")
_BROKEN = re.compile(r"(?:\s|\\+[nr])+")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
# What a known secret may not be, for it would be removed everywhere.
_WORD = re.compile(r"(?i:none|null|true|false|yes|no|~|undefined)|\*+|\[removed.*")
# A value of NAME=VALUE that is none: a template, a reference, a mark, nothing.
_EMPTY = re.compile(
    r"\{\{.*|\$\{\w+\}|\$(?:[A-Z_][A-Z0-9_]*|[a-z_]+)|<[^>]*>|\*+|%\(\w+\)s|(?i:none|null|true|false|yes|no|~|undefined)"
    r"|\[removed.*|!vault.*|%[a-zA-Z](?:/\S*)?|/(?:run/credentials|etc/apiary)/\S*"
)
_LEARNED = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[!-~]{12,200}")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")


def marked(kind: str) -> str:
    """Return what stands in the place of a secret."""
    return f"[removed:{kind}]"


@functools.cache
def _tokens() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (one["kind"], re.compile(one["pattern"])) for one in knowledge("secrets.yml")["tokens"]
    )


@functools.cache
def _names() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    table = knowledge("secrets.yml")["names"]
    return re.compile(table["secret"]), re.compile(table["innocent"]), re.compile(table["mapping"])


# What stands between a name and its value, and the value itself.
_BETWEEN = re.compile(
    r"\\*[\"']?\s*(?:=>|=|:(?!//))[ \t]*(?:\|[+-]?\s*\n\s+)?"
    r"|\\*[\"']\s*,\s*(?=\\*[\"'])|[ \t\0]+(?=\S)"
    # The next item of a list, as YAML writes it.
    r"|[\"']?(?:\s*\n|(?:\\+n))\s*- (?=[^\s-])"
)
# A quote within a quoted text has a backslash more, or is doubled in YAML.
_QUOTED = re.compile(
    r"(?P<quote>\\*(?:\"\"\"|'''|[\"']))"
    r"(?P<value>(?:''|(?!(?<!\\)(?P=quote))[^\n]){1,4096})(?<!\\)(?P=quote)"
)
_LOOSE = re.compile(r"(?P<quote>\\*[\"'])(?P<value>(?:(?!(?P=quote))[^\n]){1,4096})(?P=quote)")
_BARE = re.compile(r"(?P<value>[^\s\"',;&<>{}\[\]\\][^\s\"',;&<>\\]{0,4095})")
_OPENED = re.compile(r"\\*[\"']\Z")
_NAME = re.compile(r"[\w.-]")
_COUNT = re.compile(r"[0-9.]+(?:e[+-]?[0-9]+)?[a-zA-Z]?")
_AUTH = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}\Z")
# vLLM's --api-key takes several.
_MORE_KEYS = re.compile(r"[ \t\0]+(?!-)(?P<value>[^\s\0\"',;]{4,})")
# Options of programs that take passwords, in a list of arguments.
_PROGRAMS = {"curl": ("-u", "-U", "--user", "--proxy-user"), "sshpass": ("-p",)}
# What a string of a document begins, what ends it, and what its further lines look like.
_OPENING = (
    ("private-key", "PRIVATE KEY-----", "-----END"),
    ("private-key", "PRIVATE KEY BLOCK-----", "-----END"),
    ("vault", "$ANSIBLE_VAULT;", "\n"),
)
_MORE = {
    # A journal's line has words before.
    "private-key": re.compile(
        r"(?:\S+[ \t]+){0,6}(?:[A-Za-z0-9+/]{1,}={0,2}|=[A-Za-z0-9+/]{4}|-----END .*)|"
        r"(?:.*\s)?(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset): .*|"
    ),
    "vault": re.compile(r"(?:\S+[ \t]+){0,6}[0-9a-f]{2,}"),
}
_LONGEST_NAME = 80


def _assignments(text: str) -> Iterator[tuple[int, int]]:
    """Yield where values of secrets stand: NAME=VALUE, NAME: VALUE, --NAME VALUE, in any quotes."""
    spans = sorted((*_lines(text), *_words(text)), key=lambda span: (span[0], -span[1]))
    at = 0
    for begin, end in spans:
        if begin >= at:
            yield begin, end
            at = end


def _lines(text: str) -> Iterator[tuple[int, int]]:
    for name, begin, end in named_lines(text, secret_name):
        value = text[begin:end].strip()
        if not _none(name, value.strip("\"'")) and not _VARIABLE.fullmatch(value):
            yield begin, end


def _none(name: str, value: str) -> bool:
    """Say whether a value is no secret, whatever its name: nothing, a template, a count."""
    counts = "token" in name.lower() and _COUNT.fullmatch(value)
    return bool(counts or not value.strip() or _EMPTY.fullmatch(value.strip()))


def _words(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    for word in _names()[0].finditer(text):
        begin, end = word.span()
        while begin > max(at, word.start() - _LONGEST_NAME) and _NAME.match(text[begin - 1]):
            begin -= 1
        while end < min(len(text), word.end() + _LONGEST_NAME) and _NAME.match(text[end]):
            end += 1
        name = text[begin:end]
        between = _BETWEEN.match(text, end)
        if begin < at or between is None or not secret_name(name):
            continue
        if not re.search("[=:]", between[0]) and not name.startswith("--"):
            continue  # two words of a sentence, or of a list
        for one, last in listed(text, end):
            value = text[one:last]
            if not _none(name, value) and not _VARIABLE.fullmatch(value):
                yield one, last
                at = last
        found = _QUOTED.match(text, between.end()) or _LOOSE.match(text, between.end())
        opened = _OPENED.search(text, max(0, begin - 16), begin)
        if found is None and opened and between[0][:1] not in "\"'\\":
            # "NAME=VALUE WITH BLANKS": the quote was opened before the name.
            rest = re.compile(rf"(?P<value>(?:(?!{re.escape(opened[0])})[^\n]){{1,4096}})")
            found = rest.match(text, between.end())
        found = found or _BARE.match(text, between.end())
        if found is None:
            continue
        if not _none(name, found["value"]):
            yield found.span("value")
            at = found.end()
            more = _MORE_KEYS.match(text, at) if name.startswith("--api-key") else None
            while more:
                yield more.span("value")
                at = more.end()
                more = _MORE_KEYS.match(text, at)


def secret_name(name: str) -> bool:
    """Say whether a name's value is a secret, by the words in the name."""
    secret, innocent, _mapping = _names()
    return bool(secret.search(name)) and not innocent.search(name)


class Redactor:
    """Removes secrets and counts what it removed, by kind; no value is ever told."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self.short = 0
        self._known: dict[str, tuple[Form, ...]] = {}
        self._open = ""  # the kind of what a document's strings have begun, a line each
        self.know(values)

    def know(self, values: Iterable[str]) -> None:
        """Take values for secrets from now on; lines of a longer text count one by one as well."""
        for value in values:
            stripped = value.strip()
            if 0 < len(stripped) < SHORTEST or _WORD.fullmatch(stripped):
                self.short += 1
            parts = [stripped]
            if "\n" in stripped:
                parts += [line.strip() for line in stripped.splitlines() if len(line.strip()) >= 16]
            for part in parts:
                if len(part) >= SHORTEST and part not in self._known and not _WORD.fullmatch(part):
                    self._known[part] = forms(part)
        # The longest first: one may be the beginning of another.
        self._known = dict(sorted(self._known.items(), key=lambda item: (-len(item[0]), item[0])))

    @property
    def known(self) -> int:
        """Return how many secrets are known by their value."""
        return len(self._known)

    def learn(self, text: str) -> None:
        """Take long values of NAME=VALUE for secrets wherever else they stand."""
        found = []
        for begin, end in _assignments(text):
            # Within a quoted text, what ends a line is no part of the value.
            found += re.split(r"\\+[nrt]", text[begin:end])[:1]
        self._know_long(found)

    def learn_document(self, data: Any, secret: bool = False) -> None:
        """Learn from the parts of a document; ``secret`` says that a name above tells of one."""
        if isinstance(data, Mapping):
            for key, value in data.items():
                self.learn_document(value, secret or secret_name(str(key)))
        elif isinstance(data, (list, tuple)):
            for one in data:
                self.learn_document(one, secret)
        elif isinstance(data, str):
            self.learn(data)
            if secret:
                self._know_long([data])

    def _know_long(self, values: Iterable[str]) -> None:
        self.know(
            value for value in values if _LEARNED.fullmatch(value) and not _EMPTY.fullmatch(value)
        )

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        text = self._without_known(text)
        for kind, pattern in _tokens():
            text = pattern.sub(functools.partial(self._replaced, kind), text)
        if "-----END" in text:
            text = self._without(text, cut_keys(text), "private-key")
        return self._without(text, _assignments(text), "named")

    def start(self) -> Redactor:
        """Forget what the document before began and did not end."""
        self._open = ""
        return self

    def document(self, data: Any) -> Any:
        """Return the data of a JSON or YAML document without secrets; its shape stays."""
        if isinstance(data, Mapping):
            return self._mapping(data)
        if isinstance(data, (list, tuple)):
            return self._list(data)
        return self._line(data) if isinstance(data, str) else self._number(data)

    def _line(self, text: str) -> str:
        """Return a string of a document; it may be a line of a key that another one began."""
        if self._open and _MORE[self._open].fullmatch(text.strip()):
            kind = self._open
            self.counts[kind] += 1
            self._open = "" if "-----END" in text else kind
            return marked(kind)
        self._open = ""
        for kind, begin, end in _OPENING:
            if begin in text and end not in text[text.rfind(begin) :]:
                self._open = kind
        return self.text(text)

    def leaks(self, text: str) -> bool:
        """Say whether a known secret is in a text in any of its forms."""
        looks = _looks(text)
        return any(
            form.part in looks[form.within] and form.pattern.search(text)
            for found in self._known.values()
            for form in found
        )

    def _without(self, text: str, spans: Iterable[tuple[int, int]], kind: str) -> str:
        parts, at = [], 0
        for begin, end in spans:
            self.counts[kind] += 1
            parts += [text[at:begin], marked(kind)]
            at = end
        return "".join([*parts, text[at:]])

    def _without_known(self, text: str) -> str:
        looks = _looks(text)
        for found in self._known.values():
            for form in found:
                if form.part not in looks[form.within]:
                    continue
                text, count = _cut(form, text)
                if count:
                    self.counts["known"] += count
                    looks = _looks(text)
        return text

    def _replaced(self, kind: str, match: re.Match[str]) -> str:
        whole = match[0]
        if "secret" not in match.re.groupindex:
            self.counts[kind] += 1
            return marked(kind)
        if match["secret"].startswith("[removed"):
            return whole
        self.counts[kind] += 1
        begin, end = match.span("secret")
        start = match.start()
        return whole[: begin - start] + marked(kind) + whole[end - start :]

    def _number(self, value: Any) -> Any:
        """Return a number, unless it is a secret; one that is a count stays."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return value
        if str(value) in self._known:
            self.counts["known"] += 1
            return marked("known")
        return value

    def _mapping(self, data: Mapping[Any, Any]) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        # {"name": "HF_TOKEN", "value": …} is how Kubernetes writes a variable.
        named = data.get("name")
        beside = isinstance(named, str) and secret_name(named)
        for key, value in data.items():
            name = str(key)
            inside = _names()[2].search(name) and isinstance(value, Mapping)
            # USER:PASSWORD in base64, as in the configuration of Docker and Podman.
            pair = name == "auth" and isinstance(value, str) and _AUTH.match(value)
            hidden = inside or pair or secret_name(name) or (beside and name == "value")
            cleaned[self.text(name)] = self._hidden(value) if hidden else self.document(value)
        return cleaned

    def _hidden(self, value: Any) -> Any:
        """Return a secret's place: of what has parts each, but never names of variables."""
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._hidden(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [
                one if isinstance(one, str) and _VARIABLE.fullmatch(one) else self._hidden(one)
                for one in value
            ]
        if value is None or isinstance(value, bool) or value == "":
            return value
        if isinstance(value, str) and _EMPTY.fullmatch(value):
            return self.text(value)
        self.counts["named"] += 1
        return marked("named")

    def _list(self, data: Iterable[Any]) -> list[Any]:
        cleaned: list[Any] = []
        data = list(data)
        program = str(data[0]).rpartition("/")[2] if data else ""
        given = _PROGRAMS.get(program, ())
        hide, hidden = False, ""
        for one in data:
            if hide and isinstance(one, (str, int)) and not str(one).startswith("--"):
                cleaned.append(self._hidden(one))
            else:
                cleaned.append(self.document(one))
            if isinstance(one, str):
                flag = bool(_FLAG.fullmatch(one))
                # --api-key takes more than one.
                several = hide and "api" in hidden and not flag
                hide = (flag and (secret_name(one) or one in given)) or several
                hidden = one if flag else hidden
            else:
                hide = False
        return cleaned


def _looks(text: str) -> dict[str, str]:
    """Return a text as each kind of form is looked for in it."""
    return {"plain": text, "lower": text.lower(), "unbroken": _BROKEN.sub("", text)}


def _cut(form: Form, text: str) -> tuple[str, int]:
    """Return a text without the matches of a form, and how many there were."""
    parts: list[str] = []
    at = 0
    for match in form.pattern.finditer(text):
        begin, end = match.span()
        if begin < at or begin == end:
            continue
        if form.whole:
            while begin > at and _RUN.fullmatch(text[begin - 1]):
                begin -= 1
            run = _RUN.match(text, end)
            end = run.end() if run else end
        parts += [text[at:begin], marked("known")]
        at = end
    if not parts:
        return text, 0
    return "".join([*parts, text[at:]]), len(parts) // 2


def clean_json(redactor: Redactor, text: str) -> str:
    """Return a JSON text without secrets, sorted and indented; raise ValueError for no JSON."""
    cleaned = redactor.start().document(json.loads(text))
    return json.dumps(cleaned, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
