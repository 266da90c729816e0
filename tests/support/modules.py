# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one of our modules in this process, as Ansible would on a host."""

import json

import pytest
from ansible.module_utils.testing import patch_module_args


def run_module(module, capsys, check_mode=False, **arguments):
    """Return what the module printed as its result; ``module`` is its Python module."""
    told = {**arguments, "_ansible_check_mode": check_mode, "_ansible_diff": True}
    with patch_module_args(told), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)
