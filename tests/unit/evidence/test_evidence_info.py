# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module around the collector."""

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.apiary.instinct.plugins.modules import evidence_info


@pytest.mark.parametrize("check_mode", [False, True])
def test_it_returns_evidence_and_changes_nothing(check_mode, capsys, monkeypatch):
    monkeypatch.setattr(
        evidence_info,
        "collect_host",
        lambda sources, programs: {"schema": "apiary.evidence/v1"},
    )
    with (
        patch_module_args(
            {"_ansible_check_mode": check_mode, "sources": {"gpu": {"commands": {}}}}
        ),
        pytest.raises(SystemExit) as end,
    ):
        evidence_info.main()
    result = json.loads(capsys.readouterr().out)
    assert end.value.code == 0
    assert result["changed"] is False
    assert result["evidence"] == {"schema": "apiary.evidence/v1"}
