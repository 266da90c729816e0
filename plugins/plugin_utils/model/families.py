# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each model_type's config.json leaves unsaid, and reading its keys without guessing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import is_whole, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding

SOURCE = "knowledge/models/families.yml"
LARGEST = 2**40  # more than any dimension, so that a larger number is a mistake
_WRAPPED = ("text_config", "llm_config", "language_config")


def family_of(model_type: str) -> dict[str, Any] | None:
    """Return the facts of a model_type with those it is `like`, or None for an unknown one."""
    entry = knowledge("models/families.yml")["families"].get(model_type)
    if entry is None:
        return None
    base = family_of(entry["like"]) if "like" in entry else {}
    merged = (base or {}) | {key: value for key, value in entry.items() if key != "like"}
    merged["defaults"] = (base or {}).get("defaults", {}) | entry.get("defaults", {})
    return merged


def is_size(value: Any, minimum: int = 1) -> TypeGuard[int]:
    """Say whether a parsed value is a whole number that a dimension can have."""
    return is_whole(value) and minimum <= value <= LARGEST


@dataclass
class Reader:
    """The keys of one config.json: the text part first, then its wrapper, then class defaults.

    A key that is needed and missing, or of the wrong type, reads as None and is noted; ``prefix``
    is the path of the keys in findings.
    """

    subject: str
    config: Mapping[str, Any]
    text: Mapping[str, Any]
    family: Mapping[str, Any]
    findings: list[Finding] = field(default_factory=list)
    missing_keys: list[str] = field(default_factory=list)
    wrong_keys: set[str] = field(default_factory=set)
    prefix: str = ""

    def below(self, key: str) -> Reader | None:
        """Return the reader of the mapping under a key, which notes into this one; None without."""
        inner = self.mapping(key)
        if inner is None:
            return None
        return dataclasses.replace(
            self, config=inner, text=inner, family={}, prefix=f"{self.prefix}{key}."
        )

    def has(self, key: str) -> bool:
        """Say whether the config itself gives the key a value."""
        return self.text.get(key) is not None or self.config.get(key) is not None

    def get(self, key: str) -> Any:
        """Return a value as it is, or None."""
        for source in (self.text, self.config, self.family.get("defaults", {})):
            if source.get(key) is not None:
                return source[key]
        return None

    def integer(self, key: str, needed: bool = False, minimum: int | None = None) -> int | None:
        """Return a whole number, or None: with a finding where it is needed or out of bounds.

        The minimum is 1 for what is needed; else 0, which says that there is none.
        """
        least = int(needed) if minimum is None else minimum
        value = self._given(key, needed)
        if value is None or is_size(value, least):
            return value
        at_most = f" and at most {LARGEST}" if is_whole(value) and value > LARGEST else ""
        self.wrong(key, f"a whole number of at least {least}{at_most}", value)
        return None

    def integers(self, key: str, length: int | None = None) -> list[int] | None:
        """Return a needed list of whole numbers from 0 up, or None with a finding."""
        value = self._given(key, needed=True)
        if value is None:
            return None
        whole = isinstance(value, list) and all(is_size(item, 0) for item in value)
        if whole and length in (None, len(value)):
            return list(value)
        self.wrong(key, f"a list of {'' if length is None else f'{length} '}whole numbers", value)
        return None

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """Return an object as it is, or None: with a finding for anything else."""
        value = self.get(key)
        if value is None or isinstance(value, Mapping):
            return value
        self.wrong(key, "an object", value)
        return None

    def words(self, key: str) -> str | None:
        """Return a text, or None: with a finding for anything else."""
        value = self.get(key)
        if value is None or isinstance(value, str):
            return value
        self.wrong(key, "a text", value)
        return None

    def _given(self, key: str, needed: bool) -> Any:
        value = self.get(key)
        if value is None and needed:
            self.missing(key)
        return value

    def boolean(self, key: str, needed: bool = False) -> bool | None:
        """Return true or false, or None with a finding where it is needed."""
        value = self._given(key, needed)
        if value is None or isinstance(value, bool):
            return value
        self.wrong(key, "true or false", value)
        return None

    def flag(self, name: str) -> bool | None:
        """Return a family fact that is true, or names the config key that decides."""
        fact = self.family.get(name, False)
        return self.boolean(fact, needed=True) if isinstance(fact, str) else bool(fact)

    def missing(self, key: str) -> None:
        """Note that a key is needed, and that what depends on it stays unknown."""
        path = self.prefix + key
        if path not in self.missing_keys:
            self.missing_keys.append(path)

    def wrong(self, key: str, expected: str, found: Any) -> None:
        """Note, once for each key, that it has a value of the wrong kind."""
        path = self.prefix + key
        if path in self.wrong_keys:
            return
        self.wrong_keys.add(path)
        self.note(
            "MODEL-BAD-VALUE",
            f"key {path}: expected {expected}, found {str(found)[:60]!r}; it stays unknown",
            f"set {path} to {expected}",
        )

    def note(self, code: str, message: str, remedy: str) -> None:
        """Add one warning about the config."""
        self.findings.append(Finding(code, "warning", self.subject, message, remedy, SOURCE))

    def notes(self) -> tuple[Finding, ...]:
        """Return the findings so far, with one for all missing keys."""
        if not self.missing_keys:
            return tuple(self.findings)
        names = ", ".join(self.missing_keys)
        missing = Finding(
            "MODEL-MISSING-KEY",
            "warning",
            self.subject,
            f"missing: {names}; what depends on {'it' if len(self.missing_keys) == 1 else 'them'}"
            " stays unknown",
            f"use the checkpoint's own complete config.json, or add {names} to it",
            SOURCE,
        )
        return (*self.findings, missing)


def reader(config: Mapping[str, Any], model_type: str, subject: str) -> tuple[Reader, bool]:
    """Return the reader for a config and whether its model_type is known."""
    text: Mapping[str, Any] = next(
        (config[key] for key in _WRAPPED if isinstance(config.get(key), Mapping)), config
    )
    outer = family_of(model_type) or {}
    inner_type = text.get("model_type") if text is not config else None
    inner = family_of(inner_type) if isinstance(inner_type, str) else None
    if inner is None and "text" in outer:
        inner = family_of(outer["text"])
    family = inner if inner is not None else outer
    known = bool(family) and bool(outer or text is config)
    if "vision" in outer:
        family = {**family, "vision": outer["vision"]}
    return Reader(subject, config, text, family), known
