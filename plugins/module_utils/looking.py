# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The looking half of modules: what ends or warns in theirs, host_check keeps and goes on."""

from __future__ import annotations

from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule


class Refused(Exception):  # noqa: N818 - what fail_json was told, which is findings
    """What a module would have ended with."""

    def __init__(self, message: str, findings: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.message, self.findings = message, findings


class Looking:
    """Stands in for the AnsibleModule of a module in check mode, with parameters of its own.

    Commands, temporary directories and the like are those of the module that runs; ``fail_json``
    raises Refused, and warnings are collected.
    """

    def __init__(self, module: AnsibleModule, parameters: dict[str, Any]) -> None:
        self._module, self.params = module, parameters
        self.check_mode = True
        self.warnings: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def run_command(self, *arguments: Any, **options: Any) -> Any:
        """Run a command; one that can't be started ends this look, and no other."""
        try:
            return self._module.run_command(*arguments, handle_exceptions=False, **options)
        except OSError as failure:
            raise Refused(f"{failure.filename or arguments[0]}: {failure.strerror}", []) from None

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self.warnings.append(text)

    def fail_json(self, msg: str, **more: Any) -> NoReturn:
        """End this look, and no other."""
        raise Refused(msg, more.get("findings") or [])
