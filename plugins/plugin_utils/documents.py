# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON and YAML documents to frozen dataclasses and back, each mistake named by its field."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import yaml

from .findings import ApiaryError, error

T = TypeVar("T")
KNOWLEDGE = Path(__file__).parent / "knowledge"
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is ten times faster


@functools.cache
def knowledge(name: str) -> Any:
    """Return one file of facts below knowledge/, parsed once; callers must not change it."""
    return yaml.load((KNOWLEDGE / name).read_text(encoding="utf-8"), Loader=YAML_LOADER)  # noqa: S506 - a safe loader


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
    try:
        return typing.cast(T, _builder(typing.cast(Any, cls))(data))
    except _Misfit as misfit:
        raise misfit.refusal(subject) from None


class _Misfit(Exception):  # noqa: N818 - it never leaves this module
    """A value that doesn't fit; its path grows on the way out, so that fitting costs none."""

    def __init__(self, code: str, **facts: str) -> None:
        super().__init__(code)
        self.code, self.facts = code, facts
        self.path = ""

    def under(self, part: str) -> _Misfit:
        """Return this misfit as seen by the container: ``part`` is `.field` or `[3]`."""
        self.path = part + self.path
        return self

    def refusal(self, subject: str) -> ApiaryError:
        """Return the finding, which names the field."""
        path, facts = self.path.removeprefix("."), self.facts
        if self.code == "DOC-TYPE":
            expected = facts["expected"]
            return error(
                self.code,
                subject,
                f"field {path or '(top)'}: expected {expected}, found {facts['found']}",
                field=path or "the document",
                allowed=expected,
            )
        if self.code == "DOC-UNKNOWN":
            return error(
                self.code,
                subject,
                f"field {path} is not known; expected one of {facts['expected']}",
                field=path,
            )
        if self.code == "DOC-MISSING":
            return error(self.code, subject, f"field {path} is missing", field=path)
        return error(
            self.code,
            subject,
            f"schema is {facts['found']}, expected {facts['expected']!r}",
            document=f"a document written as {facts['expected']}",
        )


_Builder = Callable[[Any], Any]
_SCALARS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _wrong(expected: str, found: Any) -> _Misfit:
    shown = repr(found) if len(repr(found)) < 80 else type(found).__name__
    return _Misfit("DOC-TYPE", expected=expected, found=shown)


@functools.cache
def _builder(hint: Any) -> _Builder:
    """Return the function that builds values of a type, made once for each type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value: value
    if origin in (typing.Union, types.UnionType):
        builds = tuple(_builder(item) for item in arguments if item is not type(None))
        inner = builds[0] if len(builds) == 1 else functools.partial(_either, builds)
        if type(None) not in arguments:
            return inner
        return lambda value: None if value is None else inner(value)
    if origin is typing.Literal:
        return functools.partial(_literal, arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return functools.partial(_list, arguments[0], _builder(arguments[0]))
    if origin is tuple:
        return functools.partial(_row, tuple(map(_builder, arguments)))
    if origin in (dict, Mapping):
        return functools.partial(_mapping, _builder(arguments[1]))
    if dataclasses.is_dataclass(hint):
        return functools.partial(_object, hint)
    return functools.partial(_scalar, hint)


def _either(builds: tuple[_Builder, ...], value: Any) -> Any:
    """Build the first of several types that fits; of the misfits the one furthest in is told."""
    misfits = []
    for build in builds:
        try:
            return build(value)
        except _Misfit as misfit:
            misfits.append(misfit)
    inside = [misfit for misfit in misfits if misfit.path]
    if not inside:
        kinds = dict.fromkeys(misfit.facts["expected"] for misfit in misfits)
        raise _wrong(" or ".join(kinds), value)
    raise next((misfit for misfit in inside if misfit.code == "DOC-TYPE"), inside[0])


def _literal(choices: tuple[Any, ...], value: Any) -> Any:
    if value not in choices:
        few = "one of " if len(choices) > 1 else ""
        raise _wrong(few + ", ".join(map(str, choices)), value)
    return value


def _list(hint: Any, build: _Builder, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _wrong("a list", value)
    if hint is str and all(item.__class__ is str for item in value):
        return tuple(value)
    result = []
    try:
        for item in value:
            result.append(build(item))
    except _Misfit as misfit:
        raise misfit.under(f"[{len(result)}]") from None
    return tuple(result)


def _row(builds: tuple[_Builder, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _wrong("a list", value)
    if len(builds) != len(value):
        raise _wrong(f"a list of {len(builds)}", value)
    result: list[Any] = []
    try:
        for build, item in zip(builds, value, strict=True):
            result.append(build(item))
    except _Misfit as misfit:
        raise misfit.under(f"[{len(result)}]") from None
    return tuple(result)


def _mapping(build: _Builder, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong("a mapping", value)
    result = {}
    for key, item in value.items():
        try:
            result[str(key)] = build(item)
        except _Misfit as misfit:
            raise misfit.under(f".{key}") from None
    return result


def _scalar(hint: Any, value: Any) -> Any:
    if value.__class__ is hint:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise _wrong(_SCALARS.get(hint, hint.__name__), value)
    # Ansible's tagged strings are subclasses; plans carry plain ones.
    return hint(value)


@functools.cache
def _plan(hint: Any) -> tuple[dict[str, _Builder], tuple[str, ...]]:
    """Return a dataclass's builders by field, and the fields that must be given."""
    hints = typing.get_type_hints(hint)
    items = dataclasses.fields(hint)
    required = tuple(
        item.name
        for item in items
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    )
    return {item.name: _builder(hints[item.name]) for item in items}, required


def dataclasses_of(document: type) -> dict[str, type]:
    """Return every dataclass that a document is made of, by name."""
    matches: dict[str, type] = {}
    waiting: list[Any] = [document]
    while waiting:
        hint = waiting.pop()
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            if hint.__name__ not in matches:
                matches[hint.__name__] = hint
                hints = typing.get_type_hints(hint)
                waiting += [hints[field.name] for field in dataclasses.fields(hint)]
        else:
            waiting += typing.get_args(hint)
    return matches


def learn(*documents: type) -> None:
    """Make what builds these documents, for the processes that are forked from this one."""
    for document in documents:
        for part in dataclasses_of(document).values():
            _plan(part)


def _object(hint: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong("a mapping", value)
    value = _without_schema(hint, value)
    builders, required = _plan(hint)
    if not builders.keys() >= value.keys():
        key = next(key for key in value if key not in builders)
        raise _Misfit("DOC-UNKNOWN", expected=", ".join(sorted(builders))).under(f".{key}")
    for name in required:
        if name not in value:
            raise _Misfit("DOC-MISSING").under(f".{name}")
    fields: dict[str, Any] = {}
    for key, item in value.items():
        try:
            fields[str(key)] = builders[key](item)
        except _Misfit as misfit:
            raise misfit.under(f".{key}") from None
    # A finding's constructor takes facts; what a document has was explained by who wrote it.
    return getattr(hint, "from_fields", hint)(**fields)


def _without_schema(hint: Any, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a document, having checked that it is of the kind asked for."""
    schema = getattr(hint, "SCHEMA", None)
    if schema is None or "schema" not in value:
        return value
    if value["schema"] != schema:
        raise _Misfit("DOC-SCHEMA", found=repr(value["schema"]), expected=schema)
    return {key: item for key, item in value.items() if key != "schema"}
