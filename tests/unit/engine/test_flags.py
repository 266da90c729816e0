# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the versions accept."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import flags as engine
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from support.shared import SHARED

NEWEST = engine.newest()
NEXT = "99.0.0"
MATRIX = SHARED / "data/vllm/matrix.json"


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        ("0.33.0", "0.33.0"),
        ("v0.14.1", "0.14.1"),
        ("0.11.2", "0.11.2.post2"),  # a post-release fixes packaging, not the interface
        ("0.11.2.post2", "0.11.2.post2"),
        ("0.14.1+rocm700", "0.14.1"),
        ("0.24", "0.24.0"),
    ],
)
def test_a_known_release_is_resolved(asked, version):
    resolved = engine.resolve_version(asked)
    assert (resolved.version, resolved.findings) == (version, ())


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        (NEXT, NEWEST),
        ("0.14.0", "0.13.0"),
        (f"{NEWEST}rc1", engine.versions()[-2]),
        (f"{NEWEST.rpartition(chr(46))[0]}.99.dev7+gabc", NEWEST),
    ],
)
def test_an_unknown_version_gets_the_nearest_known_one_below(asked, nearest):
    resolved = engine.resolve_version(asked, subject="engine.version of qwen")
    assert (resolved.requested, resolved.version) == (asked, nearest)
    (finding,) = resolved.findings
    assert (finding.code, finding.severity) == ("ENGINE-NEAREST-VERSION", "warning")
    assert finding.subject == "engine.version of qwen"
    assert f"rules and flags of {nearest}" in finding.message
    assert f"engine.treat_as: {nearest} " in finding.remedy


@pytest.mark.parametrize("asked", ["0.1.0", "0.9.1", "latest", ""])
def test_what_is_older_than_all_known_ones_or_no_version_is_refused(asked):
    with pytest.raises(ApiaryError) as refusal:
        engine.resolve_version(asked)
    (finding,) = refusal.value.findings
    assert finding.code == "ENGINE-UNKNOWN-VERSION"
    assert f"from 0.9.2 to {NEWEST}" in finding.message
    assert f"engine.treat_as: {NEWEST} " in finding.remedy


def test_treat_as_takes_another_versions_facts_and_says_so():
    resolved = engine.resolve_version(NEXT, NEWEST)
    assert (resolved.requested, resolved.version) == (NEXT, NEWEST)
    (finding,) = resolved.findings
    assert (finding.code, finding.severity) == ("ENGINE-TREATED-AS", "warning")


def test_treat_as_the_same_version_says_nothing():
    assert engine.resolve_version("0.33.0", "0.33.0").findings == ()


def test_treat_as_must_be_known():
    with pytest.raises(ApiaryError, match=r"engine\.treat_as is 98\.9"):
        engine.resolve_version(NEXT, "98.9")


def test_versions_are_in_order():
    assert engine.versions()[0] == "0.9.2"
    assert list(engine.versions()) == sorted(engine.versions(), key=order)


def test_every_release_since_0_14_1_is_known():
    """The index has 0.15.0 and 0.15.1 as wheels alone, and no 0.14.2 or 0.26.1."""
    minors = {order(version).release[1] for version in engine.versions()}
    assert set(range(14, order(NEWEST).release[1] + 1)) <= minors
    both = {"0.15.0", "0.17.0", "0.18.0", "0.19.0", "0.20.1", "0.22.0", "0.25.0", "0.27.0"}
    assert both <= set(engine.versions())


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("--tensor-parallel-size", f"0.9.2 to {NEWEST}"),
        ("-tp", f"0.9.2 to {NEWEST}"),
        ("--attention-backend", f"0.13.0 to {NEWEST}"),
        ("--num-scheduler-steps", "0.9.2"),
        ("VLLM_USE_V1", "0.9.2 to 0.11.0"),
        ("VLLM_ENGINE_READY_TIMEOUT_S", f"0.14.1 to {NEWEST}"),
        ("--no-such-flag", ""),
    ],
)
def test_where_a_flag_or_variable_is_known(name, where):
    assert engine.seen_in(name) == where


def test_a_flag_may_come_back():
    there = {
        version
        for version in engine.versions()
        if "--disable-log-requests" in engine.flags(version)
    }
    assert {"0.16.0", "0.33.0"} <= there
    assert "0.17.1" not in there
    assert "0.32.0" not in there


def test_every_spelling_leads_to_one_action():
    flags = engine.flags("0.33.0")
    prefix = flags["--enable-prefix-caching"]
    assert flags["--disable-prefix-caching"] is prefix
    assert flags["--no-enable-prefix-caching"] is prefix
    assert prefix.negative == ("--disable-prefix-caching", "--no-enable-prefix-caching")
    assert prefix.hidden == ("--no-enable-prefix-caching",)
    assert not prefix.takes_value
    assert flags["-tp"].name == "--tensor-parallel-size"
    assert flags["-tp"].takes_value
    assert flags["--gpu-memory-utilization"].name == "--gpu-memory-utilization"


def test_enforced_choices_follow_the_version():
    name = "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION"
    assert engine.env_vars("0.9.2")[name].choices is None
    assert "INT3" not in engine.env_vars("0.24.0")[name].choices
    assert "INT3" in engine.env_vars("0.33.0")[name].choices
    assert "ROCM_AITER_FA" in engine.env_vars("0.14.1")["VLLM_ATTENTION_BACKEND"].choices


def test_config_keys_and_names_follow_the_version():
    assert "max_capture_size" in engine.config_keys("0.11.0", "CompilationConfig") or (
        "full_cuda_graph" in engine.config_keys("0.11.0", "CompilationConfig")
    )
    assert "full_cuda_graph" not in engine.config_keys("0.13.0", "CompilationConfig")
    assert engine.config_keys("0.33.0", "NoSuchConfig") == {}
    assert "ROCM_AITER_FA" in engine.enum_names("0.13.0", "AttentionBackendEnum")
    assert "fp8_per_channel" in engine.literals("0.24.0", "QuantizationMethods")
    assert "fp8_per_channel" not in engine.literals("0.22.1", "QuantizationMethods")


@pytest.mark.parametrize(
    ("name", "version", "kind"),
    [
        ("--seed", "0.33.0", "int"),
        ("--gpu-memory-utilization", "0.9.2", "float"),
        ("--max-num-batched-tokens", "0.33.0", "size"),
        ("--max-model-len", "0.33.0", "size-or-auto"),
        ("--compilation-config", "0.14.1", "config"),
        ("--hf-overrides", "0.33.0", "json-or-text"),
        ("--served-model-name", "0.33.0", "text"),
        ("--kv-offloading-size", "0.33.0", "float"),
    ],
)
def test_flags_have_the_type_that_their_converter_takes(name, version, kind):
    assert engine.flags(version)[name].type == kind


def test_every_flag_with_a_value_has_choices_or_a_type():
    untyped = {
        flag.dest
        for version in engine.versions()
        for flag in engine.actions(version)
        if flag.takes_value and not flag.choices and not flag.type
    }
    parsers = {"lora_modules", "prompt_adapters", "log_config_file"}
    assert untyped - parsers <= {
        *("device_ids", "reasoning_parser"),
        *(
            f"guided_decoding_disable_{name}"
            for name in ("fallback", "any_whitespace", "additional_properties")
        ),
    }


@pytest.mark.skipif(not MATRIX.is_file(), reason="the flag matrix is not here")
def test_the_facts_are_those_of_an_independent_reading():
    """The same releases, read by other code into another form: the flag matrix."""
    matrix = json.loads(MATRIX.read_text())
    releases = matrix["versions"]

    def seen(entry):
        for part in entry:
            first, _, last = part.partition("..")
            yield from releases[releases.index(first) : releases.index(last or first) + 1]

    def state(entry, version, key):
        value = None
        for change in entry["history"]:
            if releases.index(change["from"]) > releases.index(version):
                break
            value = None if key in change.get("dropped", ()) else change.get(key, value)
        return value

    assert set(releases) <= set(engine.versions())
    for version in releases:
        flags = {name for name, entry in matrix["flags"].items() if version in seen(entry["seen"])}
        env = {name for name, entry in matrix["env"].items() if version in seen(entry["seen"])}
        assert set(engine.flags(version)) == flags
        assert set(engine.env_vars(version)) == env
        for name in flags:
            flag, entry = engine.flags(version)[name], matrix["flags"][name]
            choices = state(entry, version, "choices")
            assert flag.dest == state(entry, version, "dest")
            assert flag.choices == (choices and tuple(map(str, choices)))
        for group in ("enums", "literals"):
            for name, values in matrix[group].items():
                members = {value for value, where in values.items() if version in seen(where)}
                assert members <= set(engine._members(name, group, version))
        for name, entry in matrix["config_keys"].items():
            keys = {k for k, fact in entry["keys"].items() if version in seen(fact["seen"])}
            assert set(engine.config_keys(version, name)) == keys
