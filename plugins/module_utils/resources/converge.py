# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring a host to a list of resources; inspect them all before the first is applied.

How a kind is added: a module of this package with ``OPTIONS`` (an argument specification),
``NAMED_BY`` (the option that tells two of a list apart, or ``name(resource)`` where that is made of
more), ``inspect(host, resource) -> Difference`` without effects and ``apply(host, resource,
difference)``; then its name in the list of imports below. A kind raises
``finding.error``; ``OSError`` and ``ValueError`` are refusals, too, and ``host.warn`` reports what
apply met. One whose work follows other resources' changes has ``dues(resource) -> {due: [names of
resources]}``: each due is recorded on the host before the first of these changes, so that the run
after an aborted one completes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..finding import ApiaryError, Finding, error
from .types import Difference, Host, Resource

# All kinds; AnsiballZ packs what it finds imported here, and no host runs this line.
if TYPE_CHECKING:
    from . import (  # noqa: F401
        command,
        configuration,
        directory,
        file,
        image,
        json_settings,
        live,
        mount,
        offline_files,
        packages,
        release,
        replicas,
        repository,
        service,
        transaction,
        user,
        verify,
        wheels,
    )
_NOT_OPTIONS = ("kind", "role", "part")


def kind_of(name: str) -> Any:
    """Import a kind where a list has it: what no list has costs no start of the module.

    Raises ApiaryError where there is none of this name.
    """
    try:
        kind = importlib.import_module(f"{__package__}.{name}") if name.isidentifier() else None
    except ImportError:
        kind = None
    if not hasattr(kind, "OPTIONS"):
        raise _wrong(name, "is no kind of resource: the page of apiary.instinct.converge has them")
    return kind


def name_of(resource: Mapping[str, Any]) -> str:
    """Return the name by which a resource is omitted, or followed by others: `file /etc/x`."""
    kind = kind_of(resource["kind"])
    option = getattr(kind, "NAMED_BY", None)
    return f"{resource['kind']} {resource[option] if option else kind.name(resource)}"


class Item:
    """One resource of a list, with its kind and its checked options."""

    def __init__(self, document: Resource) -> None:
        self.role, kind = document.get("role", ""), str(document.get("kind"))
        self.kind = kind_of(kind)
        options = {key: value for key, value in document.items() if key not in _NOT_OPTIONS}
        checked = ArgumentSpecValidator(self.kind.OPTIONS).validate(options)
        if checked.error_messages:
            raise _wrong(kind, "; ".join(checked.error_messages))
        self.options = checked.validated_parameters
        self.name = name_of({"kind": kind, **self.options})
        self.dues: dict[str, list[str]] = {}
        if hasattr(self.kind, "dues"):
            self.dues = self.kind.dues(self.options)

    def inspect(self, host: Host) -> Difference:
        """Return the difference, with what refuses it."""
        host.role = self.role
        try:
            difference: Difference = self.kind.inspect(host, self.options)
        except ApiaryError as refusal:
            return Difference(refusals=refusal.findings)
        except (OSError, ValueError) as failure:
            return Difference(refusals=(_failed(self.name, failure),))
        if difference.changed:
            host.changed.add(self.name)
            host.changed_roles.add(self.role)
        return difference

    def apply(self, host: Host, difference: Difference) -> None:
        """Apply the difference; raise ApiaryError where that fails."""
        try:
            self.kind.apply(host, self.options, difference)
        except OSError as failure:
            raise ApiaryError(_failed(self.name, failure)) from None

    def report(self, difference: Difference, warnings: Iterable[Finding] = ()) -> dict[str, Any]:
        """Return what a result says of one resource."""
        findings = (*difference.refusals, *difference.warnings, *warnings)
        return {
            "resource": self.name,
            "role": self.role,
            "changed": difference.changed,
            "diff": list(difference.diff),
            "steps": list(difference.steps),
            "findings": [finding.facts() for finding in findings],
            **({"result": difference.result} if difference.result else {}),
        }


class Aborted(ApiaryError):  # noqa: N818 - it carries what is done, and is no error of ours
    """A resource that could not be applied: what was done before it and what was not tried."""

    def __init__(
        self, item: Item, refusal: ApiaryError, done: list[dict[str, Any]], left: list[str]
    ) -> None:
        super().__init__(*refusal.findings)
        self.resource, self.done, self.not_tried = item.name, done, left


def items(documents: list[Resource]) -> list[Item]:
    """Return the resources; raise ApiaryError for one of no kind, or two of one name."""
    checked = [Item(document) for document in documents]
    # Roles may share a resource; in one role's list it would be a mistake.
    names = [(item.role, item.name) for item in checked]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _wrong(", ".join(name for _role, name in twice), "is listed twice")
    return checked


def inspect_all(
    host: Host, checked: list[Item]
) -> tuple[list[dict[str, Any]], tuple[Finding, ...]]:
    """Return a report of every resource, and all refusals; one prevents no other's inspection."""
    differences = [item.inspect(host) for item in checked]
    reports = [item.report(difference) for item, difference in zip(checked, differences)]
    return reports, tuple(finding for each in differences for finding in each.refusals)


def apply_all(host: Host, checked: list[Item]) -> list[dict[str, Any]]:
    """Apply in order, each as the host then is; raise Aborted with what was done until then."""
    host.applying = True
    done: list[dict[str, Any]] = []
    for number, item in enumerate(checked):
        difference = item.inspect(host)
        later = checked[number + 1 :]
        try:
            if difference.refusals:
                raise ApiaryError(*difference.refusals)
            if difference.changed:
                for other in later:
                    for due, after in other.dues.items():
                        if item.name in after:
                            host.mark(due)
                item.apply(host, difference)
        except ApiaryError as refusal:
            # What was written is not left unread by systemd.
            try:
                host.reload()
            except ApiaryError as second:
                refusal = ApiaryError(*refusal.findings, *second.findings)
            raise Aborted(item, refusal, done, [other.name for other in later]) from None
        done.append(item.report(difference, host.warnings))
        host.warnings = []
    host.reload()
    return done


def _failed(name: str, failure: Exception) -> Finding:
    return Finding("HOST-RESOURCE", name, str(failure))


def _wrong(subject: str, message: str) -> ApiaryError:
    return error("HOST-RESOURCES", subject, message)
