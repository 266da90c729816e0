# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings: the one shape for every warning and refusal, on hosts and on the controller.

Code gives facts: a code, its subject, what is wrong there. The catalogue
(plugin_utils/knowledge/findings/*.yml) alone has severity, meaning, evidence and remedy::

    raise error("WEIGHTS-SPACE", path, f"{free} bytes are free, expected {size}", size=size)
    findings.append(Finding("HOST-FILE", path, f"found {actual}, expected {expected}"))
    fail(module, refusal)     # in a module: ends it with `findings` as data

Keywords fill the ``{placeholders}`` of the remedy. A severity that depends on the case is the
catalogue's, too: ``accepted`` where the operator allowed it explicitly, ``minor`` for a lesser form
of the same (``Finding(…, accepted=settings.allow_unsupported)``). ``unknown=True`` says that it
could not be read: that is info, whatever the code.

Hosts have no catalogue: a module returns ``facts()``, and the converge action, to which
meta/runtime.yml sends its tasks, completes them on the controller (``Completing`` in
plugin_utils/adapters.py). A program that stands alone on a host brings its area's entries
(plugin_utils/host/program.py). Who passes a finding on uses
``about()`` and ``reworded()``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Literal, NoReturn

Severity = Literal["error", "warning", "info"]

_NOTHING: Mapping[str, Any] = {}
# No names of values: they are the finding's own.
_RESERVED = ("code", "severity", "subject", "message", "remedy", "source", "parts")
_CASES = ("accepted", "minor", "unknown")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
# What a terminal obeys or turns round: C0, DEL and C1 but for tabs and line ends, bidirectional
# marks, and halves of characters, which no stream takes.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Returns the catalogue's entry of a code, None where it has none. Set on the controller only.
_catalogue: Callable[[str], Mapping[str, Any] | None] = _NOTHING.get


def visible(text: str) -> str:
    """Return a text whose control characters are shown, as JSON writes them, and not obeyed.

    Everything that goes to a terminal passes here: hosts choose names and messages.
    """
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def use_catalogue(entry: Callable[[str], Mapping[str, Any] | None]) -> None:
    """Have findings explained by a catalogue from now on."""
    global _catalogue
    _catalogue = entry


@dataclass(frozen=True, init=False)
class Finding:
    """One thing a person should know, with what to do about it.

    ``code`` is stable; ``subject`` names the file, host or field; ``message`` says what was found
    and what was expected; ``source`` where the fact is from. The rest is the catalogue's.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    remedy: str
    source: str | None = None

    # Not annotated as fields, so that documents lack them. ``parts`` of the subject are concerned.
    parts: ClassVar[tuple[tuple[str, ...], ...]] = ()
    _values = _NOTHING
    _case = _NOTHING

    def __init__(
        self,
        code: str,
        subject: str,
        message: str,
        *,
        source: str | None = None,
        accepted: bool = False,
        minor: bool = False,
        unknown: bool = False,
        parts: tuple[tuple[str, ...], ...] = (),
        **values: Any,
    ) -> None:
        if "severity" in values or "remedy" in values:
            raise TypeError("severity and remedy are the catalogue's")
        entry = _catalogue(code) or {}
        cases = {"accepted": accepted, "minor": minor, "unknown": unknown}
        texts = {"subject": subject, **values}
        self._set(
            {
                "code": code,
                "severity": _severity(entry, cases),
                "subject": subject,
                "message": message,
                "remedy": _PLACEHOLDER.sub(
                    lambda match: str(texts.get(match[1], match[0])), entry.get("remedy", "")
                ),
                "source": source or entry.get("source"),
                "parts": parts,
                "_values": values,
                "_case": cases,
            }
        )

    def __str__(self) -> str:
        text = f"{self.code}: {self.subject}: {self.message}"
        # Without a remedy it is not explained yet, and its severity is open.
        return visible(f"{self.severity}: {text}\n  remedy: {self.remedy}" if self.remedy else text)

    @classmethod
    def from_fields(cls, **fields: Any) -> Finding:
        """Return a finding as a document has it: whoever wrote that has explained it."""
        finding = cls.__new__(cls)
        finding._set(fields)
        return finding

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Finding:
        """Return the finding of a host's ``facts()``; raise ValueError for what is none."""
        code, subject, message = (facts.get(name) for name in ("code", "subject", "message"))
        source, values = facts.get("source"), facts.get("values") or {}
        texts = (code, subject, message, source or "", *values)
        if not isinstance(values, Mapping) or not all(isinstance(text, str) for text in texts):
            raise ValueError("a finding has code, subject and message as texts")
        named = {name: values[name] for name in values if name not in _RESERVED + _CASES}
        cases: dict[str, Any] = {name: True for name in _CASES if facts.get(name) is True}
        return cls(str(code), str(subject), str(message), source=source, **cases, **named)

    def facts(self) -> dict[str, Any]:
        """Return what a host knows of it, as data."""
        facts: dict[str, Any] = {
            "code": self.code,
            "subject": self.subject,
            "message": self.message,
            "source": self.source,
        }
        if self._values:
            facts["values"] = {name: str(value) for name, value in self._values.items()}
        return {**facts, **{name: True for name, holds in self._case.items() if holds}}

    @property
    def is_minor(self) -> bool:
        """Return whether it is a lesser form of what its code means."""
        return bool(self._case.get("minor"))

    def about(self, subject: str) -> Finding:
        """Return the same finding about something else, as who is further out names it."""
        return self._with(subject=subject)

    def reworded(self, **texts: str) -> Finding:
        """Return it with a ``message`` or ``remedy`` that is put as its readers need it."""
        return self._with(**texts)

    def _with(self, **fields: str) -> Finding:
        other = type(self).__new__(type(self))
        other._set({**vars(self), **fields})
        return other

    def _set(self, fields: Mapping[str, Any]) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)


def _severity(entry: Mapping[str, Any], cases: Mapping[str, bool]) -> Any:
    if cases["unknown"]:
        return "info"
    named = [entry[case] for case in ("accepted", "minor") if cases[case] and case in entry]
    return named[0] if named else entry.get("severity", "error")


class ApiaryError(Exception):
    """The base of every refusal: it carries the findings that explain it."""

    def __init__(self, *findings: Finding) -> None:
        if not findings:
            raise ValueError("an ApiaryError needs at least one finding")
        self.findings = findings
        super().__init__("\n".join(str(finding) for finding in findings))


def error(code: str, subject: str, message: str, **values: Any) -> ApiaryError:
    """Return a refusal with one finding, ready to be raised; the arguments are Finding's."""
    return ApiaryError(Finding(code, subject, message, **values))


def has_errors(findings: Iterable[Finding]) -> bool:
    """Return whether any finding is a refusal."""
    return any(finding.severity == "error" for finding in findings)


def fail(module: Any, *refusals: Finding | ApiaryError, note: str = "", **result: Any) -> NoReturn:
    """End a module with its findings as data; ``result`` is what else it returns.

    ``note`` is what a person reads behind them, as what was done before.
    """
    findings: list[Finding] = []
    for refusal in refusals:
        findings += refusal.findings if isinstance(refusal, ApiaryError) else (refusal,)
    lines = [visible(f"{each.code}: {each.subject}: {each.message}") for each in findings]
    module.fail_json(
        msg="\n".join([*lines, *([note] if note else [])]),
        findings=[finding.facts() for finding in findings],
        **({"note": note} if note else {}),
        **result,
    )
    raise AssertionError("fail_json returns")
