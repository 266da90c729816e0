# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validate an inventory on the controller: the adapter from Ansible to plugin_utils.fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.vars.hostvars import HostVarsVars

from ..plugin_utils.adapters import Deciding, warn
from ..plugin_utils.checkpoint import read_checkpoint
from ..plugin_utils.documents import knowledge, to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.fleet.templates import Templates
from ..plugin_utils.fleet.validation.hosts import HostVariables, PlainSecret, Scope
from ..plugin_utils.fleet.validation.variables import known_names, validate
from ..plugin_utils.host.role_options import ROLES, read_role

try:
    from ansible._internal._datatag._tags import Origin, VaultedValue
except ImportError:  # another ansible-core may keep them elsewhere: then no file is named
    Origin = VaultedValue = None

GROUPS = ("gpu_hosts", "routers", "weights_writers")
_REACHED = ("ansible_host", "ansible_port")
_VAULT = b"$ANSIBLE_VAULT"


class ActionModule(Deciding):
    """The validate action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Return all mistakes of the hosts' variables; end the task where one is an error."""
        only = arguments["hosts"] or task_vars["ansible_play_hosts_all"]
        groups = task_vars["groups"]
        names = dict.fromkeys(name for group in GROUPS for name in groups.get(group, ()))
        names |= dict.fromkeys(only)
        roles = _roles()
        inventory = _Inventory(task_vars["hostvars"], roles, task_vars.get("omit"))
        hosts = [inventory.host(name) for name in names]
        scope = Scope(tuple(task_vars["ansible_run_tags"]), tuple(task_vars["ansible_skip_tags"]))
        findings = validate(hosts, roles, _unread(hosts), frozenset(only), scope)
        forbidden = ("error", "warning") if arguments["strict"] else ("error",)
        wrong = [finding for finding in findings if finding.severity in forbidden]
        result = {"hosts": len(only), "findings": to_document(findings)}
        if wrong:
            lines = [str(finding) for finding in findings if finding.severity != "info"]
            head = f"{len(wrong)} mistakes in the variables of {len(only)} hosts, nothing touched"
            raise AnsibleActionFail("\n".join([head, *lines]), result=result)
        warn(findings)
        return {**result, "msg": f"{len(only)} hosts, {len(findings)} findings, no error"}


class _Inventory:
    """The variables of hosts, templates resolved where there are any."""

    def __init__(self, hostvars, roles: Mapping, omit: object) -> None:
        self.hostvars, self.omit = hostvars, omit
        secrets = {
            name for each in roles.values() for name, option in each.items() if option.get("no_log")
        }
        self.secrets = secrets | set(knowledge("variables.yml")["secrets"])
        self.wanted = known_names(roles) | self.secrets | set(_REACHED)
        self.templates = Templates()
        self.known: dict[object, tuple[object, str | None]] = {}

    def host(self, name: str) -> HostVariables:
        """Return what the inventory says of one host."""
        raw = self.hostvars.raw_get(name)
        own = {**raw, "hostvars": self.hostvars, "omit": self.omit}
        resolver = HostVarsVars(own, self.hostvars._loader, name)
        values, unresolved = {}, {}
        for variable in self.wanted & raw.keys():
            if self.templates.names(raw[variable]) is None:
                values[variable] = raw[variable]
                continue
            value, problem = self._resolved(variable, own, resolver)
            if problem is None:
                values[variable] = value
            else:
                unresolved[variable] = problem
        return HostVariables(
            host=name,
            groups=frozenset(raw.get("group_names", ())),
            names=frozenset(map(str, raw)),
            values=values,
            unresolved=unresolved,
            secrets=tuple(self._secrets(values)),
        )

    def _resolved(self, variable: str, own: Mapping, resolver: Mapping) -> tuple:
        """Return a variable's value, or None and why it has none; once for hosts that share it."""
        key = self.templates.key(variable, own)
        if key is not None and key in self.known:
            return self.known[key]
        try:
            found = resolver[variable], None
        except AnsibleError as failure:
            found = None, " ".join(str(failure).split())
        if key is not None:
            self.known[key] = found
        return found

    def _secrets(self, values: Mapping) -> Iterator[PlainSecret]:
        for name in sorted(self.secrets & values.keys()):
            files = {file for leaf in _leaves(values[name]) if (file := _file(leaf))}
            for file in sorted(files):
                if not _encrypted(file):
                    yield PlainSecret(name, file)


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, str) and value:
        yield value


def _file(value: str) -> str | None:
    """Return the file that a text stands in as it is; None for one that was encrypted."""
    if Origin is None or VaultedValue.is_tagged_on(value):
        return None
    origin = Origin.get_tag(value)
    return str(origin.path) if origin is not None and origin.path else None


@cache
def _encrypted(file: str) -> bool:
    """Return whether a whole file is encrypted; one that cannot be read is nobody's business."""
    try:
        with open(file, "rb") as stream:
            return stream.read(len(_VAULT)) == _VAULT
    except OSError:
        return True


def _unread(hosts: list[HostVariables]) -> dict:
    """Return what is wrong with the files that deployments name as their models' config.json."""
    asked = []
    for host in hosts:
        several = host.values.get("apiary_deployments")
        asked += several if isinstance(several, (list, tuple)) else []
        asked.append(host.values.get("apiary_deployment"))
    models = [one.get("model") for one in asked if isinstance(one, Mapping)]
    found = {}
    for config in dict.fromkeys(one.get("config") for one in models if isinstance(one, Mapping)):
        if not isinstance(config, str):
            continue
        try:
            read_checkpoint(config)
        except ApiaryError as refusal:
            found[config] = refusal.findings[0]
    return found


@cache
def _roles() -> dict:
    """Return every role's options by its name."""
    return {
        path.parents[1].name: read_role(path.parents[1].name).options
        for path in sorted(ROLES.glob("*/meta/argument_specs.yml"))
    }
