# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The operator's overrides: spelled for the version, kept, dropped or refused."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.review import review
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known

from support.engines import QWEN, deployment

QWEN3 = known(QWEN)


def make(version="0.33.0", args=None, env=None, **more):
    asked = deployment(version=version, args=args, env=env, ep=True, **more)
    return recipe(QWEN3, asked, "MI325X", 8000)


def refused(version="0.33.0", args=None, env=None, **more):
    with pytest.raises(ApiaryError) as caught:
        make(version, args, env, **more)
    (finding,) = (item for item in caught.value.findings if item.severity == "error")
    return finding


def after(argv, name, count=1):
    start = argv.index(name)
    return argv[start + 1 : start + 1 + count]


@pytest.mark.parametrize("key", ["seed", "--seed", "-seed"])
def test_dashes_may_be_left_out(key):
    assert after(make(args={key: 7}).argv, "--seed") == ("7",)


@pytest.mark.parametrize("name", knowledge("vllm/renamed.yml")["ignored"])
def test_a_variable_of_the_past_that_chose_nothing_is_noted_as_explain_has_it(name):
    """vLLM warns and goes on; what chose what runs stays refused, below."""
    (noted,) = [item for item in make(env={name: 1}).findings if item.subject == name]
    command = f"{name}=1 vllm serve m -tp 8"
    reviewed = review(command, QWEN3, deployment(version="0.33.0"), "MI325X").findings
    (explained,) = [item for item in reviewed if name in item.message]
    for found in (noted, explained):
        assert (found.code, found.severity) == ("ENGINE-NO-EFFECT", "info")
        assert "known in 0.9.2" in found.message
        assert "leave it out" in found.message


@pytest.mark.parametrize("name", ["VLLM_ATTENTION_BACKEND", "VLLM_V1_USE_PREFILL_DECODE_ATTENTION"])
def test_a_variable_of_the_past_that_chose_what_runs_is_wrong_in_explain_as_in_a_plan(name):
    command = f"{name}=ROCM_ATTN vllm serve m -tp 8"
    reviewed = review(command, QWEN3, deployment(version="0.33.0"), "MI325X").findings
    (explained,) = [item for item in reviewed if name in item.message]
    planned = refused(env={name: "ROCM_ATTN"})
    assert (explained.code, explained.severity) == (planned.code, planned.severity)
    assert planned.code == "ENGINE-UNKNOWN-ENV"


@pytest.mark.parametrize("key", ["max_cudagraph_capture_size", "--max-cudagraph-capture-size"])
def test_underscores_stand_for_dashes(key):
    assert after(make(args={key: 512}).argv, "--max-cudagraph-capture-size") == ("512",)


def test_an_override_takes_the_place_of_the_rules_element():
    plain, changed = make(), make(args={"attention_backend": "TRITON_ATTN"})
    assert after(changed.argv, "--attention-backend") == ("TRITON_ATTN",)
    assert len(plain.argv) == len(changed.argv)
    assert plain.argv.index("--attention-backend") == changed.argv.index("--attention-backend")
    (reason,) = (item for item in changed.reasons if item.element == "--attention-backend")
    assert (reason.rule, reason.reason) == ("OPERATOR", "set by the operator")


def test_null_drops_an_element_and_its_reason():
    made = make(args={"safetensors-load-strategy": None}, env={"HF_HUB_OFFLINE": None})
    assert "--safetensors-load-strategy" not in made.argv
    assert "HF_HUB_OFFLINE" not in made.env
    named = {reason.element for reason in made.reasons}
    assert not {"--safetensors-load-strategy", "HF_HUB_OFFLINE"} & named


def test_dropping_what_is_not_there_changes_nothing():
    assert make(args={"seed": None}, env={"FOO": None}) == make()


@pytest.mark.parametrize(
    ("version", "key", "value", "spelled"),
    [
        ("0.33.0", "enable-prefix-caching", True, "--enable-prefix-caching"),
        ("0.33.0", "enable-prefix-caching", False, "--disable-prefix-caching"),
        ("0.14.1", "enable-prefix-caching", False, "--no-enable-prefix-caching"),
        ("0.14.1", "no-enable-prefix-caching", True, "--no-enable-prefix-caching"),
        ("0.33.0", "no-enable-prefix-caching", True, "--disable-prefix-caching"),
        ("0.33.0", "no-enable-prefix-caching", False, "--enable-prefix-caching"),
        ("0.33.0", "disable-custom-all-reduce", True, "--disable-custom-all-reduce"),
        ("0.33.0", "disable-log-requests", True, "--disable-log-requests"),
        ("0.9.2", "disable-log-requests", True, "--disable-log-requests"),
    ],
)
def test_booleans_are_spelled_as_the_version_does(version, key, value, spelled):
    assert make(version, args={key: value}).argv[-1] == spelled


def test_a_mapping_is_one_json_element():
    made = make(args={"compilation-config": {"cudagraph_mode": "PIECEWISE", "backend": ""}})
    assert after(made.argv, "--compilation-config") == (
        '{"backend":"","cudagraph_mode":"PIECEWISE"}',
    )


def test_json_text_stays_as_it_is():
    text = '{"cudagraph_mode": "FULL"}'
    assert after(make(args={"compilation-config": text}).argv, "--compilation-config") == (text,)


def test_a_key_after_a_dot_is_checked_and_kept():
    made = make(args={"compilation-config.cudagraph_mode": "PIECEWISE"})
    assert after(made.argv, "--compilation-config.cudagraph_mode") == ("PIECEWISE",)


def test_lists_follow_the_flag():
    made = make(args={"served-model-name": ["a", "b"], "middleware": ["x.y", "z"]})
    assert after(made.argv, "--served-model-name", 2) == ("a", "b")
    assert made.argv[-4:] == ("--middleware", "x.y", "--middleware", "z")


def test_overrides_without_a_rule_follow_sorted():
    one = make(args={"seed": 1, "dtype": "bfloat16"}, env={"B": 1, "A": True})
    two = make(args={"dtype": "bfloat16", "seed": 1}, env={"A": True, "B": 1})
    assert one == two
    assert one.argv[-4:] == ("--dtype", "bfloat16", "--seed", "1")
    assert list(one.env)[-2:] == ["A", "B"]
    assert one.env["A"] == "1"


def test_rules_see_the_overrides():
    off = make(env={"VLLM_ROCM_USE_AITER": 0})
    assert off.env["VLLM_ROCM_USE_AITER"] == "0"
    assert "--attention-backend" not in off.argv
    assert "--attention-backend" not in make(env={"VLLM_ROCM_USE_AITER_MHA": "False"}).argv


@pytest.mark.parametrize(
    ("version", "args", "env", "code", "parts"),
    [
        ("0.33.0", {"num-scheduler-steps": 10}, {}, "ENGINE-UNKNOWN-FLAG", ["in 0.9.2", "V0"]),
        ("0.20.2", {"swap-space": 4}, {}, "ENGINE-UNKNOWN-FLAG", ["0.9.2 to 0.17.1"]),
        (
            "0.20.2",
            {"disable-log-requests": True},
            {},
            "ENGINE-UNKNOWN-FLAG",
            ["0.9.2 to 0.16.0, and 0.33.0", "not logged by default"],
        ),
        ("0.12.0", {"attention-backend": "X"}, {}, "ENGINE-UNKNOWN-FLAG", ["0.13.0 to 0.33.0"]),
        (
            "0.33.0",
            {"enable-prefix-cachin": True},
            {},
            "ENGINE-UNKNOWN-FLAG",
            ["--enable-prefix-caching is meant"],
        ),
        ("0.33.0", {"": 1}, {}, "ENGINE-UNKNOWN-FLAG", []),
        ("0.33.0", {"-x y": 1}, {}, "ENGINE-UNKNOWN-FLAG", []),
        (
            "0.33.0",
            {},
            {"VLLM_V1_USE_PREFILL_DECODE_ATTENTION": 1},
            "ENGINE-UNKNOWN-ENV",
            ["0.9.2 to 0.14.1", "use --attention-backend ROCM_ATTN"],
        ),
        (
            "0.33.0",
            {"fail-on-environ-validation": True},
            {"VLLM_USE_V1": 1},
            "ENGINE-UNKNOWN-ENV",
            ["0.9.2 to 0.11.0", "only engine"],
        ),
        (
            "0.33.0",
            {},
            {"VLLM_ATTENTION_BACKEND": "X"},
            "ENGINE-UNKNOWN-ENV",
            ["--attention-backend"],
        ),
        (
            "0.33.0",
            {},
            {"VLLM_ROCM_USE_AITR": 1},
            "ENGINE-UNKNOWN-ENV",
            ["VLLM_ROCM_USE_AITER is meant"],
        ),
        (
            "0.33.0",
            {"compilation-config": {"full_cuda_graph": False}},
            {},
            "ENGINE-UNKNOWN-KEY",
            ["no key full_cuda_graph", "cudagraph_mode"],
        ),
        (
            "0.33.0",
            {"compilation-config": '{"max_capture_size": 1}'},
            {},
            "ENGINE-UNKNOWN-KEY",
            ["2067"],
        ),
        ("0.18.1", {"compilation-config.level": 3}, {}, "ENGINE-UNKNOWN-KEY", ["use mode"]),
        (
            "0.33.0",
            {"compilation-config": {"cudagraph_mod": 1}},
            {},
            "ENGINE-UNKNOWN-KEY",
            ["cudagraph_mode?"],
        ),
        ("0.33.0", {"compilation-config": "{"}, {}, "ENGINE-BAD-VALUE", ["column 2"]),
        ("0.33.0", {"attention-backend": "ROCM_AITER"}, {}, "ENGINE-BAD-CHOICE", ["ROCM_AITER_FA"]),
        ("0.33.0", {"all2all-backend": "mori"}, {}, "ENGINE-BAD-CHOICE", ["mori_low_latency"]),
        ("0.33.0", {"quantization": "ptpc_fp8"}, {}, "ENGINE-BAD-CHOICE", ["fp8_per_channel"]),
        (
            "0.33.0",
            {},
            {"VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "FP8"},
            "ENGINE-BAD-CHOICE",
            ["FP, INT8"],
        ),
        ("0.33.0", {"enable-prefix-caching": "yes"}, {}, "ENGINE-BAD-VALUE", ["true or false"]),
        ("0.33.0", {"seed": "abc"}, {}, "ENGINE-BAD-VALUE", ["a whole number", "'abc'"]),
        ("0.9.2", {"seed": 1.5}, {}, "ENGINE-BAD-VALUE", ["a whole number"]),
        ("0.33.0", {"kv-offloading-size": "64GB"}, {}, "ENGINE-BAD-VALUE", ["a number"]),
        ("0.33.0", {"hf-overrides": "{a}"}, {}, "ENGINE-BAD-VALUE", ["JSON"]),
        ("0.33.0", {"compilation-config": "[1]"}, {}, "ENGINE-BAD-VALUE", ["a JSON object"]),
        ("0.33.0", {}, {"VLLM_RINGBUFFER_WARNING_INTERVAL": "x"}, "ENGINE-BAD-VALUE", ["number"]),
        ("0.33.0", {}, {"VLLM_ROCM_USE_AITER_MOE": "yes"}, "ENGINE-BAD-VALUE", ["0 or 1"]),
        (
            "0.33.0",
            {"compilation-config": {"cudagraph_mode": "SOME"}},
            {},
            "ENGINE-BAD-CHOICE",
            ["FULL_AND_PIECEWISE"],
        ),
        (
            "0.33.0",
            {"attention-config": {"backend": "ROCM_FA"}},
            {},
            "ENGINE-BAD-CHOICE",
            ["ROCM_AITER_FA"],
        ),
        ("0.33.0", {"seed": True}, {}, "ENGINE-BAD-VALUE", ["takes a value"]),
        ("0.33.0", {"seed": float("nan")}, {}, "ENGINE-BAD-VALUE", ["not a number"]),
        ("0.33.0", {"middleware": []}, {}, "ENGINE-BAD-VALUE", ["empty"]),
        ("0.33.0", {"seed": "1\n--host evil"}, {}, "ENGINE-BAD-VALUE", ["control character"]),
        ("0.33.0", {"headless": False}, {}, "ENGINE-BAD-VALUE", ["switch it off"]),
        ("0.33.0", {}, {"A B": 1}, "ENGINE-BAD-VALUE", ["variable name"]),
        ("0.33.0", {}, {"A": "1\nB=2"}, "ENGINE-BAD-VALUE", ["control character"]),
        ("0.33.0", {"seed": 1, "--seed": 2}, {}, "ENGINE-DUPLICATE-OVERRIDE", ["twice"]),
        ("0.33.0", {"tp": 8}, {}, "ENGINE-OVERRIDE-OWNED", ["layout.tensor_parallel_size"]),
        (
            "0.33.0",
            {"tensor_parallel_size": None},
            {},
            "ENGINE-OVERRIDE-OWNED",
            ["to vLLM's default"],
        ),
        ("0.33.0", {"port": 9}, {}, "ENGINE-OVERRIDE-OWNED", ["base_port"]),
        ("0.33.0", {"dp": 2}, {}, "ENGINE-OVERRIDE-OWNED", ["layout.replicas"]),
        (
            "0.33.0",
            {"enable-expert-parallel": False},
            {},
            "ENGINE-OVERRIDE-OWNED",
            ["layout.expert"],
        ),
        ("0.33.0", {"max-model-len": 5}, {}, "ENGINE-OVERRIDE-OWNED", ["limits.max_model_len"]),
        ("0.33.0", {}, {"HIP_VISIBLE_DEVICES": "0"}, "ENGINE-OVERRIDE-OWNED", ["placement"]),
    ],
)
def test_what_the_version_or_the_plan_does_not_take_is_refused(version, args, env, code, parts):
    finding = refused(version, args, env)
    assert finding.code == code
    for part in parts:
        assert part in finding.message + " " + finding.remedy


@pytest.mark.parametrize(
    ("version", "args", "part"),
    [
        ("0.33.0", {"device-ids": "4,5"}, "the placement chooses the GPUs"),
        ("0.9.2", {"device": "cpu"}, "the plan is for GPUs"),
        ("0.33.0", {"headless": True}, "no HTTP"),
        ("0.33.0", {"grpc": True}, "no HTTP"),
        ("0.33.0", {"api-server-count": 0}, "no HTTP"),
        ("0.33.0", {"asc": -1}, "no HTTP"),
        ("0.33.0", {"config": "/etc/x.yml"}, "overrule"),
        ("0.33.0", {"uds": "/run/x"}, "socket"),
        ("0.33.0", {"ssl-certfile": "/etc/x.pem"}, "tls: true"),
        ("0.33.0", {"numa-bind": True}, "memory nodes"),
        ("0.33.0", {"nnodes": 2}, "groups of hosts"),
        ("0.33.0", {"data-parallel-rank": 1}, "engines of their own"),
        ("0.33.0", {"prefill-context-parallel-size": 2}, "tensor-parallel size"),
        ("0.33.0", {"shutdown-timeout": 61}, "stop timeout"),
        ("0.33.0", {"model": "/srv/models/current"}, "model.path"),
    ],
)
def test_a_flag_that_the_plan_decides_is_refused_with_the_reason(version, args, part):
    finding = refused(version, args)
    assert finding.code == "ENGINE-OVERRIDE-OWNED"
    assert part in finding.message
    assert "from engine.args" in finding.remedy


@pytest.mark.parametrize(
    "name",
    [
        *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        *("GPU_DEVICE_ORDINAL", "APIARY_GPUS", "APIARY_DOUBL", "HOME", "VLLM_DP_SIZE"),
    ],
)
def test_a_variable_that_the_plan_decides_is_refused_with_the_reason(name):
    finding = refused(env={name: "0"})
    assert (finding.code, finding.subject) == ("ENGINE-OVERRIDE-OWNED", name)
    assert finding.remedy.startswith(f"Remove {name} from engine.env")


@pytest.mark.parametrize("name", ["APIARY_DOUBLE_PHASE_SECONDS", "HF_HOME", "VLLM_CACHE_ROOT"])
def test_what_the_plan_only_suggests_may_be_overridden(name):
    assert make(env={name: "1"}).env[name] == "1"


@pytest.mark.parametrize(
    "args",
    [
        {"api-server-count": 4},
        {"numa-bind": False},
        {"nnodes": 1},
        {"pipeline-parallel-size": 1, "dp": 1},
        {"shutdown-timeout": 60},
    ],
)
def test_an_owned_flag_that_agrees_is_kept(args):
    assert make(args=args)


@pytest.mark.parametrize(
    ("args", "env"),
    [
        ({"seed": "7"}, {}),
        ({"seed": -1}, {}),
        ({"revision": "None"}, {}),  # optional
        ({"kv-offloading-size": 0.5}, {}),
        ({"attention-backend": "rocm_attn"}, {}),  # vLLM looks it up in capitals
        ({"compilation-config": {"cudagraph_mode": "full"}}, {}),
        ({"compilation-config": {"mode": 3}}, {}),
        ({"hf-overrides": "a.b.c"}, {}),  # JSON or a name
        ({"max-logprobs": 5}, {}),
        ({}, {"VLLM_ROCM_USE_AITER_MOE": "TRUE"}),
        ({}, {"VLLM_RINGBUFFER_WARNING_INTERVAL": 60}),
    ],
)
def test_a_value_of_the_right_kind_is_kept(args, env):
    made = make(args=args, env=env)
    for key in args:
        assert f"--{key}" in made.argv
    assert set(env) <= set(made.env)


def test_an_owned_value_may_be_repeated():
    made = make(args={"tp": 4, "gpu-memory-utilization": 0.9, "enable-expert-parallel": True})
    assert made.argv == make().argv


def test_an_owned_limit_may_be_dropped():
    assert "--gpu-memory-utilization" not in make(args={"gpu-memory-utilization": None}).argv


def test_variables_that_are_not_vllms_are_the_operators_own():
    assert make(env={"NCCL_DEBUG": "WARN"}).env["NCCL_DEBUG"] == "WARN"


@pytest.mark.parametrize("value", ["high", "HIGH"])
def test_choices_fold_case_where_vllm_does(value):
    assert (
        make(env={"VLLM_FLOAT32_MATMUL_PRECISION": value}).env["VLLM_FLOAT32_MATMUL_PRECISION"]
        == value
    )


def test_a_list_of_choices_is_checked_one_by_one():
    name = "VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS"
    good = "container,code_interpreter"
    assert make(env={name: good}).env[name] == good
    assert "'shell'" in refused(env={name: "container,shell"}).message
