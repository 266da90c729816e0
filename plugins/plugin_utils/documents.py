# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON and YAML documents to frozen dataclasses and back, each mistake named by its field."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error

T = TypeVar("T")
KNOWLEDGE = Path(__file__).parent / "knowledge"
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is ten times faster


@functools.cache
def knowledge(name: str) -> Any:
    """Return one file of facts below knowledge/, parsed once; callers must not change it."""
    return yaml.load((KNOWLEDGE / name).read_text(encoding="utf-8"), Loader=_YAML)  # noqa: S506 - a safe loader


def is_whole(value: Any) -> TypeGuard[int]:
    """Say whether a parsed value is a whole number; JSON's true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def to_document(value: Any) -> Any:
    """Return plain JSON data for a dataclass, with its schema name where it is a document."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        data = {
            item.name: to_document(getattr(value, item.name)) for item in dataclasses.fields(value)
        }
        schema = getattr(value, "SCHEMA", None)
        return {"schema": schema, **data} if schema else data
    if isinstance(value, Mapping):
        return {str(key): to_document(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_document(item) for item in value]
    return value


def dumps(value: Any) -> str:
    """Return the document as the JSON text that is saved, diffed and mailed: sorted, indented."""
    return json.dumps(to_document(value), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def from_document(cls: type[T], data: Any, subject: str) -> T:
    """Build ``cls`` from parsed JSON or YAML; raise one finding for the first wrong field.

    ``subject`` names the file or host in the finding. Raises ApiaryError with DOC-SCHEMA,
    DOC-TYPE, DOC-MISSING or DOC-UNKNOWN.
    """
    return typing.cast(T, _build(cls, data, subject, ""))


def _wrong(subject: str, path: str, expected: str, found: Any) -> Exception:
    shown = repr(found) if len(repr(found)) < 80 else type(found).__name__
    return error(
        "DOC-TYPE",
        subject,
        f"field {path or '(top)'}: expected {expected}, found {shown}",
        f"set {path or 'the document'} to {expected}"
        + ("; put a version or number that is text in quotes" if expected == "text" else ""),
    )


def _build(hint: Any, value: Any, subject: str, path: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (item for item in arguments if item is not type(None))
        return _build(inner, value, subject, path)
    if origin is typing.Literal:
        if value not in arguments:
            raise _wrong(subject, path, "one of " + ", ".join(map(str, arguments)), value)
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise _wrong(subject, path, "a list", value)
        inner = arguments if arguments[-1] is not Ellipsis else (arguments[0],) * len(value)
        if len(inner) != len(value):
            raise _wrong(subject, path, f"a list of {len(inner)}", value)
        return tuple(
            _build(item_hint, item, subject, f"{path}[{index}]")
            for index, (item_hint, item) in enumerate(zip(inner, value, strict=True))
        )
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _wrong(subject, path, "a mapping", value)
        return {
            str(key): _build(arguments[1], item, subject, f"{path}.{key}" if path else str(key))
            for key, item in value.items()
        }
    if dataclasses.is_dataclass(hint):
        return _build_dataclass(hint, value, subject, path)
    return _scalar(hint, value, subject, path)


def _scalar(hint: Any, value: Any, subject: str, path: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        raise _wrong(subject, path, names.get(hint, hint.__name__), value)
    # Ansible's tagged strings are subclasses; plans carry plain ones.
    return hint(value)


def _without_schema(hint: Any, value: Mapping[str, Any], subject: str) -> Mapping[str, Any]:
    """Return the fields of a document, having checked that it is of the kind asked for."""
    schema = getattr(hint, "SCHEMA", None)
    if schema is None or "schema" not in value:
        return value
    if value["schema"] != schema:
        raise error(
            "DOC-SCHEMA",
            subject,
            f"schema is {value['schema']!r}, expected {schema!r}",
            f"pass a document written as {schema}",
        )
    return {key: item for key, item in value.items() if key != "schema"}


def _build_dataclass(hint: Any, value: Any, subject: str, path: str) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(subject, path, "a mapping", value)
    value = _without_schema(hint, value, subject)
    hints = typing.get_type_hints(hint)
    fields = {item.name: item for item in dataclasses.fields(hint)}
    prefix = f"{path}." if path else ""
    for key in value:
        if key not in fields:
            raise error(
                "DOC-UNKNOWN",
                subject,
                f"field {prefix}{key} is not known; expected one of {', '.join(sorted(fields))}",
                f"remove or correct {prefix}{key}",
            )
    for name, item in fields.items():
        required = (
            item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        )
        if required and name not in value:
            raise error(
                "DOC-MISSING", subject, f"field {prefix}{name} is missing", f"add {prefix}{name}"
            )
    return hint(
        **{
            str(key): _build(hints[key], item, subject, f"{prefix}{key}")
            for key, item in value.items()
        }
    )
