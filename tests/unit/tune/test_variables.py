# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The winner as a diff of the file that has the deployment."""

from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.variables import winner_diff

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "inventory/example/group_vars/gpu_hosts/deployment.yml"
TP8 = {"tensor_parallel_size": 8, "replicas": 1, "expert_parallel": True}
HEAD = "apiary_deployment:\n  name: mine\n  engine: {version: 0.33.0}\n"


def edited(text, changes, name="mine"):
    return winner_diff(text, "vars.yml", name, changes, "artifacts/tune/mine/tune.json")


def refused(text, changes=None, name="mine"):
    with pytest.raises(ApiaryError) as caught:
        edited(text, changes or {"limits.max_num_seqs": 256}, name)
    (finding,) = caught.value.findings
    assert finding.code == "TRIAL-VARIABLES"
    assert finding.subject == "vars.yml"
    return finding


def test_the_example_inventory_changes_in_the_lines_that_matter():
    text = EXAMPLE.read_text()
    changes = {"layout": TP8, "limits.kv_cache_dtype": "auto", "limits.max_num_seqs": 256}
    new, diff = winner_diff(text, str(EXAMPLE), "qwen3-235b", changes, "artifacts/tune.json")
    assert [line for line in diff.splitlines() if line[:1] in "+-"][2:] == [
        "-    replicas: 2",
        "-    tensor_parallel_size: 4",
        "+    # Measured by playbooks/tune.yml: artifacts/tune.json",
        "+    replicas: 1",
        "+    tensor_parallel_size: 8",
        "-    kv_cache_dtype: fp8",
        "+    kv_cache_dtype: auto",
        "+    max_num_seqs: 256",
    ]
    limits = yaml.safe_load(new)["apiary_deployment"]["limits"]
    assert (limits["kv_cache_dtype"], limits["max_num_seqs"]) == ("auto", 256)


def test_a_section_that_is_missing_is_added_at_the_end():
    new, _diff = edited(HEAD + "  # the last word\nnext: 1\n", {"limits.max_num_seqs": 256})
    assert new == (
        HEAD
        + "  # Measured by playbooks/tune.yml: artifacts/tune/mine/tune.json\n"
        + "  limits:\n    max_num_seqs: 256\n  # the last word\nnext: 1\n"
    )


def test_switches_go_into_braces_as_texts():
    new, _diff = edited(HEAD, {"engine.env.VLLM_ROCM_USE_AITER": "0", "engine.args.dtype": "half"})
    assert 'engine: {version: 0.33.0, env: {VLLM_ROCM_USE_AITER: "0"}, args: {dtype: half}}' in new


def test_an_open_layout_becomes_the_one_that_won():
    new, _diff = edited(HEAD + "  layout: auto # until it is measured\n", {"layout": TP8})
    assert yaml.safe_load(new)["apiary_deployment"]["layout"] == TP8
    assert "# until it is measured" in new


def test_a_switch_that_is_to_be_left_out_is_null():
    new, _diff = edited(HEAD, {"engine.env.VLLM_ROCM_USE_AITER_MOE": None})
    assert yaml.safe_load(new)["apiary_deployment"]["engine"]["env"] == {
        "VLLM_ROCM_USE_AITER_MOE": None
    }


def test_of_several_deployments_one_changes():
    text = (
        "apiary_deployments:\n"
        "  - name: other\n    limits: {max_num_seqs: 8}\n"
        "  - name: mine\n    limits: {max_num_seqs: 8}\n"
    )
    new, _diff = edited(text, {"limits.max_num_seqs": 256})
    assert [one["limits"]["max_num_seqs"] for one in yaml.safe_load(new)["apiary_deployments"]] == [
        8,
        256,
    ]


def test_templates_elsewhere_are_left_alone():
    text = HEAD + '  user: "{{ who }}"\n  limits:\n    max_model_len: "{{ n | int }}"\n'
    new, _diff = edited(text, {"limits.max_num_seqs": 256})
    assert all(line in new for line in text.splitlines())


def test_the_comment_of_an_earlier_tuning_is_replaced():
    text = HEAD + "  limits:\n    max_num_seqs: 8\n"
    once, _diff = edited(text, {"limits.max_num_seqs": 16})
    again, _diff = winner_diff(once, "vars.yml", "mine", {"limits.max_num_seqs": 32}, "new.json")
    assert again.count("# Measured by") == 1
    assert "new.json" in again


def test_without_changes_nothing_happens():
    assert edited(HEAD, {}) == (HEAD, "")
    assert edited(HEAD + "  layout: auto\n", {"layout": "auto"})[1] == ""


def test_a_file_without_a_newline_at_its_end_keeps_its_last_line():
    new, diff = edited(HEAD + "  limits: {max_num_seqs: 8}", {"limits.max_num_seqs": 9})
    assert new.endswith("limits: {max_num_seqs: 9}")
    assert diff.count("\\ No newline at end of file") == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(
            HEAD + '  limits: {max_num_seqs: "{{ n }}"}\n', "is a template", id="templated value"
        ),
        pytest.param(HEAD + '  limits: "{{ l }}"\n', "is a template", id="templated section"),
        pytest.param('apiary_deployment: "{{ base }}"\n', "is a template", id="templated whole"),
        pytest.param(
            "x: &l {max_num_seqs: 8}\n" + HEAD + "  limits: *l\n", "shared by an anchor", id="alias"
        ),
        pytest.param(HEAD + "  limits: &l {max_num_seqs: 8}\n", "an anchor", id="anchor"),
        pytest.param(
            HEAD + "  limits:\n    max_num_seqs: !vault |\n      6162\n", "a tag", id="vault"
        ),
        pytest.param(
            "x: &x {limits: {max_num_seqs: 8}}\n" + HEAD + "  <<: *x\n",
            "takes sections from an anchor",
            id="merged",
        ),
        pytest.param("apiary_deployment: {name: other}\n", "name: mine", id="another one"),
        pytest.param("", "empty", id="empty"),
        pytest.param("- 1\n", "no file of variables", id="list"),
        pytest.param("a: [\n", "no YAML", id="broken"),
        pytest.param(HEAD + "  limits: [1]\n", "has no item", id="list for a section"),
    ],
)
def test_what_a_program_must_not_change_is_written_by_hand(text, says):
    finding = refused(text)
    assert says in finding.message
    assert "limits:\n  max_num_seqs: 256" in finding.remedy


def test_a_value_that_ansible_would_template_is_not_written():
    assert "templated" in refused(HEAD, {"engine.env.X": "{{ x }}"}).message
