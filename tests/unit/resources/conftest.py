# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host for converge: the files of a directory, and a systemd that is told what it knows."""

from functools import partial

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.apiary.instinct.plugins.module_utils.resources import file, types
from ansible_collections.apiary.instinct.plugins.modules import converge

from support.modules import run_module


class FakeHost:
    """The commands that were run, and units with what systemctl answers of them."""

    def __init__(self, root, run):
        self.root, self._run = root, run
        self.units, self.commands, self.failing = {}, [], {}

    def path(self, name):
        return str(self.root / name)

    def converge(self, *resources, **more):
        """Run the module; return its result."""
        self.commands.clear()
        return self._run(resources=list(resources), **more)

    def check(self, *resources, **more):
        return self.converge(*resources, check_mode=True, **more)

    def unit(self, name, enabled=False, active="inactive", reload="no"):
        self.units[name] = {"enabled": enabled, "active": active, "reload": reload}

    def run_command(self, argv):
        """Answer a command as the host would."""
        if argv[0] != "systemctl":
            self.commands.append(" ".join(argv))
            return self.failing.get(" ".join(argv), (0, "", ""))
        verb, name = argv[2], argv[-1]
        unit = self.units.get(name)
        if verb == "is-enabled":
            enabled = unit and unit["enabled"]
            return (0, "enabled\n", "") if enabled else (1, "disabled\n", "")
        if verb == "show":
            state = unit or {"active": "inactive", "reload": "no"}
            load = "loaded" if unit else "not-found"
            properties = {"ActiveState": state["active"], "NeedDaemonReload": state["reload"]}
            lines = {**properties, "LoadState": load}.items()
            return 0, "".join(f"{key}={value}\n" for key, value in lines), ""
        words = " ".join(argv[2:])
        self.commands.append(words)
        if words in self.failing:
            return self.failing[words]
        if verb == "daemon-reload":
            for path in self.root.rglob("etc/systemd/system/*.service"):
                self.units.setdefault(path.name, {"enabled": False, "active": "inactive"})
            for each in self.units.values():
                each["reload"] = "no"
        elif verb in ("enable", "disable"):
            unit["enabled"] = verb == "enable"
        elif verb in ("start", "restart"):
            unit["active"] = "active"
        elif verb == "stop":
            unit["active"] = "inactive"
        return 0, "", ""


@pytest.fixture
def host(tmp_path, monkeypatch, capsys):
    """A host below tmp_path."""
    fake = FakeHost(tmp_path, partial(run_module, converge, capsys))
    monkeypatch.setattr(types, "DUE", str(tmp_path / "due"))
    folders = (str(tmp_path / "etc/systemd") + "/",)
    monkeypatch.setattr(types, "UNIT_FOLDERS", folders)
    monkeypatch.setattr(file, "UNIT_FOLDERS", folders)
    monkeypatch.setattr(file, "ORIGINALS", str(tmp_path / "originals"))
    run = lambda _module, argv, **_options: fake.run_command(argv)  # noqa: E731
    monkeypatch.setattr(AnsibleModule, "run_command", run)
    return fake
