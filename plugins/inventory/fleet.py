# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Group the hosts of an inventory by what their last surveys found."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
short_description: Groups hosts by what their last surveys found
version_added: 0.1.0
description:
  - Reads the C(survey.json) that the playbooks C(survey.yml), C(plan.yml) and C(site.yml) leave of
    every host below the artifacts directory, and puts the hosts that other sources of the
    inventory define into groups such as C(gpu_mi325x), C(hive_8), C(driver_6_16_6) and
    C(health_sick). Nothing is asked of a host.
  - Every such host gets the variable C(apiary_facts) for templates and for O(keyed_groups).
  - The file's name ends in C(apiary.yml) or C(fleet.yml). Ansible reads the files of an inventory
    directory in the order of their names, and this one has to come after those with hosts, as
    C(surveys.apiary.yml) does after C(hosts.yml).
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - ansible.builtin.constructed
options:
  plugin:
    description: Marks a file as one for this plugin.
    type: str
    required: true
    choices: [apiary.instinct.fleet]
  artifacts:
    description:
      - The artifacts directory, from where Ansible runs. A host's variable C(apiary_artifacts)
        goes before it, as in the playbooks.
    type: str
    default: artifacts
    env:
      - name: APIARY_ARTIFACTS
  group:
    description: The group whose hosts are surveyed; without such a group, all hosts.
    type: str
    default: gpu_hosts
  hosts:
    description:
      - Whether a host that has a survey and is in no other source becomes one of O(group), too. Its
        name is all that is known of it then.
    type: bool
    default: false
  group_by:
    description:
      - What makes groups. V(serves) is of the deployments that a host runs, V(settled) says whether
        the site playbook would change nothing, V(gpus) is the number of usable GPUs.
      - V(quarantined), V(stale), V(unreached) and V(unsurveyed) are groups of that name; all others
        are C(KIND_VALUE).
      - V(rack), V(row), V(site) and V(failure_domain) are by C(apiary_rack), C(apiary_row),
        C(apiary_site) and C(apiary_failure_domain).
    type: list
    elements: str
    choices: [bios, driver, failure_domain, gpu, gpus, health, hive, kernel, os, partitions,
      quarantined, rack, rocm, row, serves, settled, site, stale, unreached, unsurveyed]
    default: [gpu, hive, driver, rocm, health, serves, rack, quarantined, stale, unreached,
      unsurveyed]
  prefix:
    description: Put before the name of every group of O(group_by).
    type: str
    default: ""
  max_age_hours:
    description: Older surveys are C(stale), with a warning; V(0) for never.
    type: float
    default: 168
"""

EXAMPLES = r"""
# inventory/mine/surveys.apiary.yml; then: ansible-inventory -i inventory/mine --graph
plugin: apiary.instinct.fleet
---
# Other groups, all of them beginning with "seen_", and some of one's own.
plugin: apiary.instinct.fleet
prefix: seen_
group_by: [gpu, driver, partitions, stale]
max_age_hours: 24
groups:
  small: apiary_facts.gpus | default(8) < 8
keyed_groups:
  - key: apiary_facts.kernel | default('')
    prefix: kernel
"""

import datetime
import os
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.inventory.helpers import get_group_vars
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible.utils.vars import combine_vars
from ansible.vars.plugins import get_vars_from_inventory_sources

from ..plugin_utils.findings import ApiaryError, Finding
from ..plugin_utils.fleet.membership import (
    PLACES,
    age_hours,
    groups_of,
    load_survey,
    nobody,
    stale,
    unread,
    unresolved,
    variables_of,
)
from ..plugin_utils.fleet.types import Survey

_ENDINGS = ("apiary.yml", "apiary.yaml", "fleet.yml", "fleet.yaml")
_SURVEY = "survey.json"
_QUARANTINE = "quarantine.json"
# What of a host's variables counts here; others may hold templates that only a play can fill.
_TEMPLATED = {"apiary_artifacts", *(f"apiary_{kind}" for kind in PLACES)}


class InventoryModule(BaseInventoryPlugin, Constructable):
    """The inventory of surveys."""

    NAME = "apiary.instinct.fleet"

    def verify_file(self, path):
        """Say whether a file is one for this plugin, by its name."""
        return super().verify_file(path) and path.endswith(_ENDINGS)

    def parse(self, inventory, loader, path, cache=True):
        """Put the hosts that are known by now into the groups of their surveys."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        self.found: list[Finding] = []
        self.unresolved: dict[str, Finding] = {}
        self.old: dict[str, float] = {}
        self.now = datetime.datetime.now(datetime.UTC)
        artifacts = Path(self.get_option("artifacts"))
        if self.get_option("hosts"):
            self._invent(artifacts)
        names = self._names()
        for name in names:
            self._place(name, artifacts)
        if not names:
            self.found.append(nobody(Path(path).name))
        self.found += stale(self.old, self.get_option("max_age_hours"))
        for finding in (*self.unresolved.values(), *self.found):
            self.display.warning(str(finding))

    def _names(self) -> list[str]:
        """Return the hosts of the group, those of its children too; all hosts without the group."""
        group = self.inventory.groups.get(self.get_option("group"))
        if group is None:
            return list(self.inventory.hosts)
        return [host.name for host in group.get_hosts()]

    def _invent(self, artifacts: Path) -> None:
        """Make hosts of the surveys whose hosts no other source has."""
        group = self.inventory.add_group(self.get_option("group"))
        for survey in sorted(artifacts.glob(f"*/{_SURVEY}")):
            if survey.parent.name not in self.inventory.hosts:
                self.inventory.add_host(survey.parent.name, group)

    def _place(self, name: str, artifacts: Path) -> None:
        """Give one host its variable and its groups."""
        own = self._variables(name)
        folder = Path(str(own.get("apiary_artifacts") or artifacts)) / name
        survey = self._survey(folder)
        states = {
            "unsurveyed": survey is None,
            "unreached": survey is not None and not survey.reached,
            "stale": survey is not None and self._is_old(name, survey),
            "quarantined": os.path.exists(folder / _QUARANTINE),
        }
        if survey is not None:
            own["apiary_facts"] = variables_of(survey)
            self.inventory.set_variable(name, "apiary_facts", own["apiary_facts"])
        places = {kind: str(own[f"apiary_{kind}"]) for kind in PLACES if own.get(f"apiary_{kind}")}
        for group in groups_of(
            survey,
            places,
            [state for state, holds in states.items() if holds],
            self.get_option("group_by"),
        ):
            self.inventory.add_child(
                self.inventory.add_group(self.get_option("prefix") + group), name
            )
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), own, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), own, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), own, name, strict=strict)

    def _variables(self, name: str) -> dict:
        """Return a host's variables as far as the inventory has them by now, group_vars/ too."""
        host = self.inventory.hosts[name]
        sources = getattr(self.inventory, "processed_sources", [])
        # Only once all sources are read does Ansible put every host into the group of all.
        groups = list(dict.fromkeys([self.inventory.groups["all"], *host.get_groups()]))
        found = get_group_vars(groups)
        for entities in (groups, [host]):
            more = get_vars_from_inventory_sources(self.loader, sources, entities, "all")
            found = combine_vars(found, more)
        own = combine_vars(found, host.get_vars())
        self.templar.available_variables = own
        for key in _TEMPLATED & own.keys():
            try:
                own[key] = self.templar.template(own[key])
            except AnsibleError as failure:  # it may wait for what only a play knows
                del own[key]
                self.unresolved.setdefault(key, unresolved(name, key, str(failure)))
        return own

    def _survey(self, directory: Path) -> Survey | None:
        """Return a survey, None where there is none that can be read."""
        try:
            return load_survey(directory)
        except OSError as failure:  # a directory that only its owner may look into
            self.found.append(unread(directory, failure))
        except ApiaryError as refusal:
            self.found += refusal.findings
        return None

    def _is_old(self, name: str, survey: Survey) -> bool:
        """Say whether a survey is too old to go by, and keep its age for the warning."""
        limit, age = self.get_option("max_age_hours"), age_hours(survey, self.now)
        if not limit or age <= limit:
            return False
        self.old[name] = age
        return True
