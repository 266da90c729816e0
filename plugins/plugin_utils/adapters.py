# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings as Ansible shows them: what every action plugin of ours does with them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.plugins.action.normal import ActionModule as NormalAction
from ansible.utils.display import Display

from ..module_utils.replicas.smoke import certificate
from .documents import YAML_LOADER, from_document, knowledge, to_document
from .evidence.types import Evidence, bounded, requested
from .files import findings_here
from .findings import ApiaryError, Finding, error, from_host
from .fleet.names import address_of
from .render.replicas import names_of
from .web_keys import replica_certificate

DISPLAY = Display()
_DISCOVERED = "discovered_interpreter_"
# How variables of Apiary begin; `set_fact` is no fact in this sense, unless it is cached.
_OURS = (
    "__",
    *("apiary_", "acceptance_", "bench_", "container_runtime_", "device_plugin_", "drain_"),
    *("engine_", "hold_", "host_tuning_", "look_", "maintain_", "monitoring_", "reboot_"),
    *("replicas_", "rocm_", "rollback_", "rollout_", "room_", "router_", "telemetry_", "tune_"),
    *("validate_", "weight_cache_", "weights_"),
)
PAGES = Path(__file__).parents[1] / "modules"
_SPECIFIED = ("type", "elements", "choices", "default", "required")


def refused(refusal: ApiaryError) -> AnsibleActionFail:
    """Return what ends a task, to be raised from None: ansible-core prints a chain of causes."""
    found = findings_here(refusal.findings)
    text = "\n".join(str(finding) for finding in found)
    return AnsibleActionFail(text, result={"findings": to_document(found)})


def warn(findings: Iterable[Finding]) -> None:
    """Show the warnings among findings."""
    for finding in findings_here(findings):
        if finding.severity == "warning":
            DISPLAY.warning(str(finding))


class Deciding(ActionBase):  # type: ignore[misc]  # ansible-core has no types
    """An action that decides on the controller; its page has its options: ``modules/NAME.yml``.

    A subclass has ``decide(arguments, task_vars)``, whose refusals end the task, and may have
    ``rules`` that concern several options, as ``required_one_of``.
    """

    _supports_check_mode = True
    _supports_diff = True
    rules: Mapping[str, Any] = {}

    def __init_subclass__(cls) -> None:
        # Where Ansible imports the action, so that the workers of all hosts have its options.
        if ".action." in cls.__module__:
            documented(cls.__module__.rpartition(".")[2])

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Return what is decided; fail with the findings of a refusal."""
        super().run(tmp, task_vars)
        name = type(self).__module__.rpartition(".")[2]
        _validation, arguments = self.validate_argument_spec(documented(name), **self.rules)
        try:
            refuse_facts(task_vars or {})
            result: dict[str, Any] = self.decide(arguments, task_vars)
        except ApiaryError as refusal:
            raise refused(refusal) from None
        except RecursionError:
            subject = f"{host_of(self, task_vars)}: what it returned"
            deep = Finding("FILE-SYNTAX", subject, "nests deeper than anything that is real")
            raise refused(ApiaryError(deep)) from None
        return {"changed": False, **result}


@functools.cache
def documented(name: str) -> dict[str, dict[str, Any]]:
    """Return the argument spec that the DOCUMENTATION of an action has."""
    text = (PAGES / f"{name}.yml").read_text(encoding="utf-8")
    page = yaml.load(text, Loader=YAML_LOADER)["DOCUMENTATION"]  # noqa: S506 - a safe loader
    return {
        option: {key: facts[key] for key in _SPECIFIED if key in facts}
        for option, facts in page["options"].items()
    }


class Completing(NormalAction):  # type: ignore[misc]  # ansible-core has no types
    """Runs the module of a task's name on its host; the findings it returns get their remedies.

    A module becomes one of those by an action plugin of its name: a subclass and no more.
    """

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Return the module's result with its findings as documents."""
        module = self._task.action.rpartition(".")[2]
        if module == "evidence_info":
            self._task.args = {**self._task.args, **requested(self._task.args.get("scopes"))}
        elif module == "bundle_info":
            self._task.args = {**self._task.args, "sources": knowledge("evidence.yml")["bundle"]}
        if self._task.args.get("resources"):
            try:
                self._task.args = dict(with_certificates(self, self._task.args, task_vars))
            except ApiaryError as refusal:
                raise refused(refusal) from None
        result: dict[str, Any] = super().run(tmp, task_vars)
        if old := too_old(self, result, task_vars):
            raise refused(old)
        if "evidence" in result:
            try:
                bounded(result["evidence"], host_of(self, task_vars))
            except ApiaryError as refusal:
                raise refused(refusal) from None
        return completed(own_words(result), self._task.action)


def with_certificates(
    action: Any, arguments: Mapping[str, Any], task_vars: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return converge's arguments with the certificates that replicas of the host have by name.

    The controller makes them where they are missing.
    """
    host = task_vars["inventory_hostname"]
    certificates = {}
    for item in arguments.get("resources") or ():
        name = certificate(str(item.get("deployment")))
        if item.get("kind") == "replicas" and name in (item.get("secrets") or ()):
            artifacts = task_vars.get("apiary_artifacts") or "artifacts"
            directory = task_vars.get("replicas_web_directory") or f"{artifacts}/fleet/web"
            known = task_vars["hostvars"][host]
            certificates[name] = replica_certificate(
                action._templar.template(directory),
                host,
                item["deployment"],
                (address_of(host, known), *names_of(item["files"])),
            )
    secrets = {**(arguments.get("secrets") or {}), **certificates}
    return {**arguments, "secrets": secrets} if certificates else arguments


def own_words(result: dict[str, Any]) -> dict[str, Any]:
    """Return a module's result without what Ansible would make variables or statistics of.

    Only the Python stays that Ansible itself discovered.
    """
    facts = result.pop("ansible_facts", None) or {}
    result.pop("ansible_stats", None)
    discovered = {name: facts[name] for name in facts if name.startswith(_DISCOVERED)}
    return {**result, "ansible_facts": discovered} if discovered else result


def refuse_facts(task_vars: Mapping[str, Any]) -> None:
    """Refuse Apiary's variables among a host's facts, which go before the inventory's.

    Any module's answer may bring them, and so the host itself.
    """
    facts = task_vars.get("ansible_facts")
    names = sorted(map(str, facts)) if isinstance(facts, Mapping) else []
    ours = [name for name in names if name.startswith(_OURS)]
    if ours:
        host = str(task_vars.get("inventory_hostname"))
        message = f"its facts have {', '.join(ours[:5])}, which the inventory says"
        raise error("FLEET-FACTS", host, message)


def gathered(action: Any, scopes: Iterable[str], task_vars: Any, **more: Any) -> Evidence:
    """Return evidence of the task's host, as its operator calls it; raise PROBE-SIZE or DOC-….

    ``more`` are further options of evidence_info.
    """
    host = task_vars["inventory_hostname"]
    arguments = {**requested(list(scopes)), **more}
    result = module_result(action, "evidence_info", arguments, task_vars)
    bounded(result.get("evidence"), host_of(action, task_vars))
    return from_document(Evidence, {**result["evidence"], "host": host}, f"{host}: evidence")


def module_result(
    action: Any,
    name: str,
    arguments: Mapping[str, Any],
    task_vars: Any,
    partial: str | None = None,
    check: bool = False,
) -> dict[str, Any]:
    """Return what one of our modules returns on the task's host; raise what it fails with.

    A failure whose result has ``partial`` is returned, too: it is in there, with what else is.
    With ``check`` the module runs in check mode, whatever the task does.
    """
    checking = action._task.check_mode
    if name == "converge":
        arguments = with_certificates(action, arguments, task_vars)
    try:
        action._task.check_mode = check or checking
        result: dict[str, Any] = action._execute_module(
            module_name=f"apiary.instinct.{name}", module_args=arguments, task_vars=task_vars
        )
    finally:
        action._task.check_mode = checking
    if result.get("unreachable"):
        raise AnsibleConnectionFailure(result.get("msg", ""))
    if old := too_old(action, result, task_vars):
        raise old
    if result.get("failed") and partial not in result:
        result = completed(result, name)
        raise AnsibleActionFail(_why(result, name), result=result)
    return result


def host_of(action: Any, task_vars: Any) -> str:
    """Return the host on which a task's modules run."""
    return str(action._task.delegate_to or (task_vars or {}).get("inventory_hostname"))


def too_old(action: Any, result: Mapping[str, Any], task_vars: Any) -> ApiaryError | None:
    """Return the refusal of a host whose Python is why a module failed without a finding."""
    ran = result.get("failed") and not result.get("findings") and action._used_interpreter
    if not ran or result.get("unreachable"):
        return None
    least = next(row["minimum"] for row in knowledge("doctor.yml")["answers"] if "minimum" in row)
    python = ran.lstrip("!#")
    words = f"{python} -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'"
    # With a terminal, what sudo or a profile prints stands there, too.
    printed = action._low_level_execute_command(words).get("stdout", "").splitlines()
    version = next((line for line in reversed(printed) if re.fullmatch(r"\d\.\d{1,2}", line)), "")
    if not version or [*map(int, version.split("."))] >= [*map(int, least.split("."))]:
        return None
    host = host_of(action, task_vars)
    message = f"found Python {version} at {python}, expected {least} or newer"
    return error("DOCTOR-HOST-PYTHON", host, message, ansible=f"ansible {host}")


def _why(result: Mapping[str, Any], name: str) -> str:
    """Return why a module failed; where it says nothing itself, the last line of its output."""
    output = f"{result.get('module_stdout') or ''}\n{result.get('module_stderr') or ''}".strip()
    return ": ".join([result.get("msg") or name, *output.splitlines()[-1:]])


def completed(result: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a module's result with the facts in ``findings`` explained, and shown."""
    if not result.get("findings"):
        return result
    found = findings_here(explained(result["findings"], name))
    if result.get("failed"):
        errors = [finding for finding in found if finding.severity == "error"] or found
        lines = [str(finding) for finding in errors]
        result["msg"] = "\n".join([*lines, *filter(None, [result.pop("note", None)])])
    if not result.get("failed") or errors != found:
        warn(found)
    return {**result, "findings": to_document(found)}


def explained(findings: Iterable[Mapping[str, Any]], name: str) -> tuple[Finding, ...]:
    """Return findings of a module's result, facts or documents; ``name`` is whose they are."""
    try:
        return tuple(map(from_host, findings))
    except (AttributeError, TypeError, ValueError) as failure:
        raise AnsibleActionFail(f"{name} returned what is no finding: {failure}") from None
