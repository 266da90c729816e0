# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one of our modules in this process, as Ansible would on a host."""

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.apiary.instinct.plugins.plugin_utils.adapters import completed


def run_module(module, capsys, check_mode=False, **arguments):
    """Return the module's result, its findings explained; ``module`` is its Python module."""
    told = {**arguments, "_ansible_check_mode": check_mode, "_ansible_diff": True}
    with patch_module_args(told), pytest.raises(SystemExit):
        module.main()
    return completed(json.loads(capsys.readouterr().out), module.__name__)
