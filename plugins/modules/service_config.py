#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring a service's configuration to wanted contents, once its own program has judged them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_config
short_description: Bring a service's configuration to wanted contents, judged by the service first
version_added: 0.1.0
description:
  - Writes new files aside, has the service's own program judge them, and only then puts them in
    place, each in one step, and has the service take them.
  - A running service is reloaded, not restarted; one that ran somebody else's configuration is
    restarted once. A reload that the service does not survive brings the former files back.
  - A run that ended between writing and reloading is made up for by the next.
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed.
    support: full
    details: Of secret files the diff says that they change, not how.
options:
  service:
    description: The systemd unit.
    type: str
    required: true
  main:
    description: The file that O(check) is asked about.
    type: path
    required: true
  check:
    description: The command that judges O(main), whose path is put at its end.
    type: list
    elements: str
    default: []
  files:
    description: Files of the configuration, and drop-ins of the unit.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      mode:
        description: Octal mode, four digits.
        type: str
        default: "0644"
      content:
        description: The whole text; without it the file is to be gone.
        type: str
  secrets:
    description: The same for files whose contents nobody else may see.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      mode:
        description: Octal mode, four digits.
        type: str
        default: "0600"
      content:
        description: The whole text; without it the file is to be gone.
        type: str
  mark:
    description: A text in O(main) that says that it is ours.
    type: str
    default: Managed by Apiary
  socket:
    description: HAProxy's runtime socket, which tells when a reload has happened.
    type: path
  reload:
    description:
      - Whether the service takes changes by a reload. Without it a running service is restarted for
        a change of any file.
    type: bool
    default: true
  restarts:
    description: Files whose changes only a restart takes, such as a drop-in with flags.
    type: list
    elements: path
    default: []
  area:
    description: The area of the codes that its findings have.
    type: str
    choices: [ROUTER, MONITORING]
    default: ROUTER
  state:
    description:
      - With V(absent) the service is stopped and disabled, its files go, and those that were there
        before come back.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Configure HAProxy
  apiary.instinct.service_config:
    service: haproxy.service
    main: /etc/haproxy/haproxy.cfg
    check: [haproxy, -c, -f]
    files: "{{ files }}"
    socket: /run/haproxy/admin.sock
"""

RETURN = r"""
written:
  description: Files that were, or in check mode would be, written.
  type: list
  elements: str
  returned: success
removed:
  description: Files that were, or would be, removed.
  type: list
  elements: str
  returned: success
action:
  description: What the service was, or would be, told; empty for nothing.
  type: str
  returned: success
  sample: reload
"""

import os
import re
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import host_files, service_config
from ..module_utils.replicas import units
from ..module_utils.router import haproxy

# A process with thousands of servers is up well within it.
RELOAD_SECONDS = 10
# What its refusals are called, by the area of the service.
CODES = {
    "ROUTER": {"config": "ROUTER-CONFIG", "reload": "ROUTER-RELOAD", "service": "ROUTER-SERVICE"},
    "MONITORING": {
        "config": "MONITORING-CONFIG",
        "reload": "MONITORING-RELOAD",
        "service": "MONITORING-SERVICE",
    },
}


class Service:
    """The service on this host."""

    def __init__(self, module):
        self.module = module
        self.name = module.params["service"]
        self.stamp = service_config.stamp_of(self.name)

    def systemctl(self, *arguments):
        return self.module.run_command(["systemctl", "--no-ask-password", *arguments])

    def properties(self):
        return service_config.parse_properties(
            self.systemctl("show", service_config.PROPERTIES, self.name)[1]
        )

    def fail(self, what, message, remedy):
        code = CODES[self.module.params["area"]][what]
        self.module.fail_json(msg=f"error: {code}: {self.name}: {message}\n  remedy: {remedy}")

    def must(self, *arguments):
        code, _out, err = self.systemctl(*arguments)
        if code != 0:
            self.fail(
                "service",
                f"systemctl {' '.join(arguments)}: {err.strip()}\n{self.journal()}",
                f"read the lines above, or journalctl -u {self.name} on the host",
            )

    def journal(self):
        return self.module.run_command(
            ["journalctl", "--unit", self.name, "--no-pager", "--output=cat", "-n", "12"]
        )[1]

    def remember(self, text):
        """Write down what the running service took; gone after a boot."""
        os.makedirs(service_config.STAMPS, mode=0o755, exist_ok=True)
        haproxy.replace_file(self.stamp, text)

    def process(self):
        """Return the id of the process that answers on the socket, None where none does."""
        try:
            told = haproxy.ask("show info", self.module.params["socket"], 2)
        except haproxy.HaproxyError:
            return None
        found = re.search(r"^Pid: ([0-9]+)$", told, re.MULTILINE)
        return found.group(1) if found else None

    def reload(self):
        """Reload, and return whether a new process took over."""
        if not self.module.params["socket"]:
            return self.systemctl("reload", self.name)[0] == 0
        before = self.process()
        if self.systemctl("reload", self.name)[0] != 0:
            return False
        end = time.monotonic() + RELOAD_SECONDS
        while time.monotonic() < end:
            now = self.process()
            if now is not None and now != before:
                return True
            time.sleep(0.1)
        return False


def write(module, changes, theirs=None) -> None:
    """Write what differs; what ``theirs`` held before is kept, and nothing of ours."""
    os.umask(0o022)
    for one in changes:
        host_files.apply(module, [one], one is theirs)


def take(service, steps, changes) -> None:
    """Have systemd do its steps; bring the former files back if the service dies of the new."""
    if steps.daemon_reload:
        service.must("daemon-reload")
    if steps.enable:
        service.must("enable", service.name)
    if steps.take in ("start", "restart"):
        service.must(steps.take, service.name)
    elif steps.take == "reload" and not service.reload():
        journal = service.journal()
        former = [
            units.FileChange(one.path, one.after, one.before, one.mode_after, one.mode_before)
            for one in changes
        ]
        write(service.module, former)
        service.reload()
        service.remember("")
        service.fail(
            "reload",
            f"does not take the new configuration; the former one is back\n{journal}",
            "mend what the lines above say, often a port that another program has",
        )


def present(service) -> None:
    module = service.module
    looked = service_config.look(module)
    changes, steps = looked.changes, looked.steps
    outcome = looked.outcome(service.name)
    check = module.params["check"]
    # Check mode on a host that does not have the program yet has nobody to ask.
    if check and (outcome["written"] or steps.take) and module.get_bin_path(check[0]):
        refused = service_config.judge(changes, check, module.params["main"], module.run_command)
        if refused:
            service.fail(
                "config",
                f"the new configuration is refused; nothing was changed\n{refused}",
                "correct the settings that the lines above speak of",
            )
    if outcome["changed"] and not module.check_mode:
        service.remember("taking")
        write(module, changes, None if looked.was_ours else looked.main)
        take(service, steps, changes)
        service.remember(
            service_config.fingerprint(changes, module.params["main"], looked.restarts)
        )
    module.exit_json(**outcome)


def absent(service) -> None:
    given = service.module.params
    secret = frozenset(one["path"] for one in given["secrets"])
    wanted = [{**one, "content": None} for one in (*given["secrets"], *given["files"])]
    changes = host_files.compare(wanted)
    main = next((one for one in changes if one.path == service.module.params["main"]), None)
    if main is None or service.module.params["mark"] not in (main.before or ""):
        # Somebody else's, or gone already: what is left of ours goes, the service is not touched.
        changes = [one for one in changes if one is not main]
        main = None
    changes = service_config.with_originals(changes)
    properties = service.properties()
    runs = properties.get("ActiveState") not in ("inactive", "failed", None)
    enabled = properties.get("UnitFileState") == "enabled"
    known = properties.get("LoadState") == "loaded"
    ours = main is not None
    steps = service_config.Steps(
        daemon_reload=any(one.changed and one.path.startswith("/etc/systemd") for one in changes),
        enable=False,
        take="disable and stop" if known and ours and (runs or enabled) else None,
    )
    outcome = service_config.result(changes, secret, service.name, steps)
    if not service.module.check_mode:
        if steps.take:
            service.must("disable", "--now", service.name)
        write(service.module, changes)
        if steps.daemon_reload:
            service.must("daemon-reload")
        for path in (service.stamp, *(host_files.ORIGINALS + one.path for one in changes)):
            if os.path.exists(path):
                os.unlink(path)
        for one in changes:
            service_config.remove_empty(os.path.dirname(one.path))
    service.module.exit_json(**outcome)


def main() -> None:
    module = AnsibleModule(argument_spec=service_config.ARGUMENTS, supports_check_mode=True)
    try:
        act = present if module.params["state"] == "present" else absent
        act(Service(module))
    except OSError as failure:
        host_files.fail(module, failure)


if __name__ == "__main__":
    main()
