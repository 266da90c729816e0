# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible's settings where the operator has none: a wheel brings no clone and its ansible.cfg."""

from __future__ import annotations

from pathlib import Path

import click

SHIPPED = Path(__file__).with_name("ansible.cfg")
_said: list[str] = []


def own_config() -> dict[str, str]:
    """Return the environment that gives Ansible our settings, empty where it finds others.

    Ansible looks at ANSIBLE_CONFIG, ./ansible.cfg, ~/.ansible.cfg and /etc/ansible/ansible.cfg.
    That ours are used is said once, on standard error.
    """
    from ansible.config.manager import find_ini_config_file  # slow to import, mostly not needed

    if find_ini_config_file() is not None:
        return {}
    if not _said:
        _said.append(f"No ansible.cfg found: using Apiary's, {SHIPPED}")
        click.echo(_said[0], err=True)
    return {"ANSIBLE_CONFIG": str(SHIPPED)}


def print_path(context: click.Context, option: click.Parameter, requested: bool) -> None:
    """Print where our settings are, for ANSIBLE_CONFIG."""
    del option
    if requested:
        click.echo(SHIPPED)
        context.exit()
