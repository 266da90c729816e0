# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A role's options: its defaults below the host's variables, templated and of the right type."""

import dataclasses
import importlib
import json

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.host import role_options
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import CONCERNS


def options(role, **variables):
    templar = Templar(loader=DataLoader(), variables=variables)
    read = role_options.read_role(role)
    return role_options.options_of(read, variables, templar, "gpu-001")


@pytest.mark.parametrize("concern", list(CONCERNS))
def test_the_defaults_of_a_role_are_settings_of_its_concern(concern):
    package = importlib.import_module(f"{role_options.__package__}.{concern}")
    settings = role_options.settings_of(concern, options(concern))
    names = {item.name for item in dataclasses.fields(package.Settings)}
    # Of a reboot, only the run itself knows whether there was one.
    assert names - set(settings) == ({"rebooted"} if concern == "reboot" else set())
    assert from_document(package.Settings, settings, "defaults")


def test_variables_of_the_host_win_and_are_templated():
    version = trust_as_template("{{ release }}.4")
    found = options("rocm", rocm_version=version, release="7.2", rocm_driver="no")
    assert found["rocm_version"] == "7.2.4"
    assert found["rocm_driver"] is False
    assert found["rocm_profile"] == "serving"
    json.dumps(found)


def test_evidence_and_plans_are_none_of_it():
    assert not [name for name in options("rocm") if name.endswith(("_evidence", "_refuse"))]
    assert "replicas_plan" not in options("replicas", replicas_plan={})


def test_every_wrong_variable_is_one_finding_with_host_and_name():
    with pytest.raises(ApiaryError) as refusal:
        options("weight_cache", weight_cache_mounts=3, weight_cache_session_slots="many")
    assert {one.code for one in refusal.value.findings} == {"FLEET-VARIABLE"}
    assert {one.subject for one in refusal.value.findings} == {
        "gpu-001: weight_cache_mounts",
        "gpu-001: weight_cache_session_slots",
    }


def test_a_template_that_leads_nowhere_is_one():
    with pytest.raises(ApiaryError) as refusal:
        options("rocm", rocm_version=trust_as_template("{{ nowhere }}"))
    (found,) = refusal.value.findings
    assert found.subject == "gpu-001: rocm_version"
    assert "nowhere" in found.message


def test_a_secret_of_the_wrong_type_is_not_shown():
    with pytest.raises(ApiaryError) as refusal:
        options("replicas", replicas_secrets=["hunter2"])
    assert "hunter2" not in str(refusal.value)


def test_a_digest_is_of_what_is_asked_and_not_of_its_order_or_secrets():
    assert role_options.digest({"a": 1, "b": 2}) == role_options.digest({"b": 2, "a": 1})
    role = role_options.read_role("replicas")
    found = options("replicas", replicas_secrets={"API_KEY": "hunter2"})
    assert "hunter2" not in json.dumps(role_options.without_secrets(role, found))
