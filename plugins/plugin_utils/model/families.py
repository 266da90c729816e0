# SPDX-License-Identifier: GPL-3.0-or-later

"""What each model_type's config.json leaves unsaid, and reading its keys without guessing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

from ..documents import is_whole, knowledge
from ..findings import Finding
from .formula import UnknownError, evaluate

SOURCE = "knowledge/models/families.yml"
LARGEST = 2**40  # more than any dimension, so that a larger number is a mistake
# Where wrappers keep the language model, outermost first.
_WRAPPED = ("thinker_config", "text_config", "llm_config", "language_config", "text_model_config")


def family_of(model_type: str) -> dict[str, Any] | None:
    """Return the facts of a model_type with those it is `like`, or None for an unknown one."""
    entry = knowledge("models/families.yml")["families"].get(model_type)
    if entry is None:
        return None
    base = family_of(entry["like"]) if "like" in entry else {}
    merged = (base or {}) | {key: value for key, value in entry.items() if key != "like"}
    for section in ("defaults", "keys", "fallback"):
        merged[section] = (base or {}).get(section, {}) | entry.get(section, {})
    return merged


def is_size(value: Any, minimum: int = 1) -> TypeGuard[int]:
    """Return whether a parsed value is a whole number that a dimension can have."""
    return is_whole(value) and minimum <= value <= LARGEST


def _is_listing(value: Any) -> TypeGuard[list[Any]]:
    """Return whether a value is a list of lists or of words."""
    if not isinstance(value, list) or not value:
        return False
    return any(all(isinstance(item, kind) for item in value) for kind in (list, str))


def _at(source: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """Return the value under a dotted path, or None; of a list of objects, what its items have.

    An item without it has the ``default``; where that is None, it is left out.
    """
    key, _dot, rest = path.partition(".")
    value: Any = source.get(key) if isinstance(source, Mapping) else None
    if isinstance(value, list) and rest:
        found = [default if (one := _at(item, rest)) is None else one for item in value]
        return [int(one) if isinstance(one, bool) else one for one in found if one is not None]
    return _at(value, rest) if rest else value


_OF_LISTS: dict[str, Callable[[list[int]], int]] = {
    "count": len,
    "product": math.prod,
    "first": lambda values: values[0],
    "leading": lambda values: values[0],
    "total": sum,
}


@dataclass
class Reader:
    """The keys of one config.json: the text part first, then its wrapper, then class defaults.

    A family's `keys` give a name that this type has under another one, or deeper (dotted); its
    `fallback` the formula for an absent key. A key that is needed and missing, or of the wrong
    type, reads as None and is noted; ``prefix`` is the path of the keys in findings.
    """

    subject: str
    config: Mapping[str, Any]
    text: Mapping[str, Any]
    family: Mapping[str, Any]
    findings: list[Finding] = field(default_factory=list)
    missing_keys: list[str] = field(default_factory=list)
    wrong_keys: set[str] = field(default_factory=set)
    assumed_keys: list[str] = field(default_factory=list)
    prefix: str = ""
    least: int = 0  # of a number in a formula; a tower has no dimension of 0
    outer: Reader | None = None

    def below(self, key: str, family: Mapping[str, Any]) -> Reader | None:
        """Return the reader of the mapping under a key, which notes into this one; None without.

        ``family`` has what its class fills in.
        """
        inner = self.mapping(key)
        if inner is None:
            return None
        inside: dict[str, Any] = {
            "config": inner,
            "text": inner,
            "family": family,
            "least": 1,
            "outer": self,
        }
        return dataclasses.replace(self, **inside, prefix=f"{self.prefix}{key}.")

    def name(self, key: str) -> str:
        """Return what this type calls a key."""
        names = self.family.get("keys", {}).get(key, key)
        return names if isinstance(names, str) else str(names[0])

    def _own(self, key: str) -> Any:
        """Return what the config itself says of a key, under any of its names."""
        names = self.family.get("keys", {}).get(key, ())
        for name in (*((names,) if isinstance(names, str) else names), key):
            for source in (self.text, self.config):
                value = _at(source, name, self.family.get("defaults", {}).get(key))
                if value is not None and value != "auto":
                    return value
        return None

    def has(self, key: str) -> bool:
        """Return whether the config itself gives the key a value."""
        return self._own(key) is not None

    def get(self, key: str) -> Any:
        """Return a value as it is, or None; a default that a class has is its value."""
        value = self._own(key)
        if value is not None:
            return value
        value = self.family.get("defaults", {}).get(key)
        if value is not None:
            return value
        value = self.family.get("class_defaults", {}).get(key)
        if value is not None and key not in self.assumed_keys:
            self.assumed_keys.append(key)
        return value

    def integer(
        self, key: str, needed: bool = False, minimum: int | None = None, most: int = LARGEST
    ) -> int | None:
        """Return a whole number, or None: with a finding where it is needed or out of bounds.

        The minimum is 1 for what is needed; else 0, which says that there is none.
        """
        least = int(needed) if minimum is None else minimum
        formula = self.family.get("fallback", {}).get(key)
        if formula is not None and self.get(key) is None:
            return self.formula(formula)
        value = self._given(key, needed)
        if value is None or (is_size(value, least) and value <= most):
            return value
        at_most = f" and at most {most}" if is_whole(value) and value > most else ""
        self.wrong(key, f"a whole number of at least {least}{at_most}", value)
        return None

    def formula(self, formula: str | int) -> int | None:
        """Return what a formula over keys comes to; None, with a finding, where one is missing."""
        try:
            return evaluate(formula, self.number)
        except UnknownError:
            return None

    def number(self, key: str) -> int:
        """Return a key's value for a formula, true as 1; raise UnknownError, having noted it."""
        function, _space, rest = key.partition(" ")
        if rest:
            return self._of_key(function, rest)
        if isinstance(self.get(key), bool):
            return int(self.get(key))
        value = self.integer(key, needed=True, minimum=self.least)
        if value is None:
            raise UnknownError(key)
        return value

    def _of_key(self, function: str, key: str) -> int:
        if function == "given":
            return int(bool(self.get(key)))
        if function == "outer":
            return self.outer.number(key) if self.outer else self.number(key)
        if function in ("text", "times"):
            key, word = key.split(" ")
            value = self.get(key)
            if function == "text" or not isinstance(value, list):
                return int(str(value) == word)
            layers = self.get("num_hidden_layers")  # a list may go on for other layers
            return sum(str(item) == word for item in value[: layers if is_size(layers) else None])
        if function == "total" and not self.has(key):
            return 0
        if function == "count" and _is_listing(self.get(key)):
            return len(self.get(key))
        if function == "first" and is_size(self.get(key)):
            return int(self.get(key))
        if function == "multiplied":
            return self._multiplied(key)
        values = self.integers(key)
        unclear = function == "first" and len(set(values or ())) != 1
        if values is None or unclear or (function == "leading" and not values):
            raise UnknownError(key)
        return _OF_LISTS[function](values)

    def _multiplied(self, key: str) -> int:
        """Return all layers' widths by their factors, as DeciLM's configuration makes them."""
        factors, skipped = self.get(key), self.integers("ffn_skipped")
        layers, hidden = self.number("num_hidden_layers"), self.number("hidden_size")
        own = list(zip(factors, skipped or (), strict=False)) if isinstance(factors, list) else []
        wide = [factor for factor, none in own[:layers] if not none]
        if len(own) < layers or not all(
            isinstance(one, (int, float)) and 0 < one < LARGEST for one in wide
        ):
            self.wrong(key, f"a factor for each of {layers} layers", factors)
            raise UnknownError(key)
        return sum(-(-int(2 * factor * hidden / 3) // 256) * 256 for factor in wide)

    def integers(self, key: str) -> list[int] | None:
        """Return a needed list of whole numbers from 0 up, or None with a finding."""
        value: list[int] | None = self._given(key, needed=True)
        if value is None or (isinstance(value, list) and all(is_size(item, 0) for item in value)):
            return value
        self.wrong(key, "a list of whole numbers", value)
        return None

    def _typed(self, key: str, kind: type, expected: str, needed: bool = False) -> Any:
        """Return a value of a type, or None: with a finding for anything else."""
        value = self._given(key, needed)
        if value is None or isinstance(value, kind):
            return value
        self.wrong(key, expected, value)
        return None

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """Return an object as it is, or None: with a finding for anything else."""
        return cast("Mapping[str, Any] | None", self._typed(key, Mapping, "an object"))

    def words(self, key: str) -> str | None:
        """Return a text, or None: with a finding for anything else."""
        return cast("str | None", self._typed(key, str, "a text"))

    def boolean(self, key: str, needed: bool = False) -> bool | None:
        """Return true or false, or None with a finding where it is needed."""
        return cast("bool | None", self._typed(key, bool, "true or false", needed))

    def _given(self, key: str, needed: bool) -> Any:
        value = self.get(key)
        if value is None and needed:
            self.missing(key)
        return value

    def flag(self, name: str) -> bool | None:
        """Return a family fact that is true, or names the config key that decides."""
        fact = self.family.get(name, False)
        return self.boolean(fact, needed=True) if isinstance(fact, str) else bool(fact)

    def missing(self, key: str) -> None:
        """Note that a key is needed, and that what depends on it stays unknown."""
        path = self.prefix + self.name(key)
        if path not in self.missing_keys:
            self.missing_keys.append(path)

    def wrong(self, key: str, expected: str, found: Any) -> None:
        """Note, once for each key, that it has a value of the wrong kind."""
        path = self.prefix + self.name(key)
        if self.prefix + key not in self.wrong_keys:
            self.wrong_keys.add(self.prefix + key)
            found = str(found)[:60]
            message = f"key {path}: expected {expected}, found {found!r}; it stays unknown"
            self.note("MODEL-BAD-VALUE", message, path=path, allowed=expected)

    def note(self, code: str, message: str, **values: Any) -> None:
        """Add one warning about the config."""
        self.findings.append(Finding(code, self.subject, message, source=SOURCE, **values))

    def notes(self) -> tuple[Finding, ...]:
        """Return the findings so far, with one for all missing keys and one for all assumed."""
        result = list(self.findings)
        if self.missing_keys:
            names = ", ".join(self.missing_keys)
            it = "it" if len(self.missing_keys) == 1 else "them"
            message = f"missing: {names}; what depends on {it} stays unknown"
            result.append(
                Finding("MODEL-MISSING-KEY", self.subject, message, source=SOURCE, names=names)
            )
        if self.assumed_keys:
            defaults = self.family["class_defaults"]
            values = ", ".join(f"{key} = {defaults[key]}" for key in self.assumed_keys)
            message = f"not in the file, taken from the model class as its loader does: {values}"
            result.append(Finding("MODEL-CLASS-DEFAULT", self.subject, message, source=SOURCE))
        return tuple(result)


def _unwrapped(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the language model's part, and what holds it: the same where there is no wrapper."""
    text, holder = config, config
    for _depth in _WRAPPED:
        inner = next((text[key] for key in _WRAPPED if isinstance(text.get(key), Mapping)), None)
        if inner is None:
            break
        holder = text if text is config else {**config, **text}
        text = inner
    return text, holder


def reader(config: Mapping[str, Any], model_type: str, subject: str) -> tuple[Reader, bool]:
    """Return the reader for a config and whether its model_type is known."""
    text, holder = _unwrapped(config)
    outer = family_of(model_type) or {}
    inner_type = text.get("model_type") if text is not config else None
    inner = family_of(inner_type) if isinstance(inner_type, str) else None
    if inner is None and "text" in outer:
        inner = family_of(outer["text"])
    family = inner if inner is not None else outer
    known = bool(family) and bool(outer or text is config)
    own: dict[str, Any] = {key: outer[key] for key in ("towers", "tower_sharding") if key in outer}
    if config.get("config_format") == "hf" and "towers_hf" in outer:
        own["towers"] = outer["towers_hf"]
    family = {**family, **own}
    return Reader(subject, holder, text, family), known
