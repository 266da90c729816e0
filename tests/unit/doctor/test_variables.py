# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks/validate.yml reported of variables is a finding of the doctor, unchanged."""

from types import SimpleNamespace

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding

from apiary.help.doctor import inventory


def test_a_finding_of_the_variables_comes_through_as_it_was_reported(monkeypatch):
    reported = Finding("DOC-MISSING-FIELD", "gpu-001: apiary_deployment", "name is missing")
    ended = SimpleNamespace(custom={"doctor_findings": [to_document(reported)]})
    monkeypatch.setattr(inventory, "run", lambda *_arguments, **_options: ended)
    assert inventory.validate_variables(SimpleNamespace(), ()) == (reported,)
