# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What no recipe can be made of, by version, model and layout; and what is close and works."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import (
    assess,
    recipe,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    architecture,
    known,
)

from support.engines import (
    DEEPSEEK,
    KIMI,
    LLAMA,
    QWEN,
    QWEN_BF16,
    STUDIED,
    deployment,
)
from support.recipes import errors, make, refusal


@pytest.mark.parametrize("version", ["0.9.2", "0.11.0"])
def test_a_release_without_nnodes_is_refused_and_ray_is_named(version):
    asked = deployment(LLAMA, version, max_model_len=32768)
    asked = dataclasses.replace(asked, layout=Layout(8, 1, pipeline_parallel_size=2, nodes=2))
    with pytest.raises(ApiaryError) as caught:
        make(asked)
    (finding,) = [one for one in caught.value.findings if one.severity == "error"]
    assert finding.code == "ENGINE-NODES-VERSION"
    assert "Ray" in finding.remedy


def test_a_replica_over_hosts_has_vllms_own_processes_only():
    args = {"distributed-executor-backend": "ray"}
    asked = deployment(LLAMA, args=args, max_model_len=32768)
    asked = dataclasses.replace(asked, layout=Layout(8, 1, pipeline_parallel_size=2, nodes=2))
    assert refusal(asked) == ["ENGINE-NODES-BACKEND"]


def test_the_study_could_not_have_run_kimi_on_the_release_it_names():
    codes = refusal(STUDIED["kimi-k2.5"]("0.14.1"))
    assert codes == ["ENGINE-MODEL-TOO-NEW"]


@pytest.mark.parametrize("version", ["0.8.5", "latest"])
def test_a_version_below_all_known_ones_is_refused(version):
    assert refusal(deployment(version=version)) == ["ENGINE-UNKNOWN-VERSION"]


REFUSED = [
    ("ENGINE-TP-HEADS", deployment(size=3)),
    ("ENGINE-TP-HEADS", deployment(LLAMA, size=6)),
    ("ENGINE-MOE-BLOCK", deployment(version="0.14.1", size=8)),
    ("ENGINE-MOE-BLOCK", deployment(version="0.28.0", size=8, env={"VLLM_ROCM_USE_AITER": 0})),
    ("ENGINE-MOE-BLOCK", deployment(version="0.30.0", size=8, args={"moe-backend": "aiter"})),
    ("ENGINE-MOE-BLOCK", deployment(version="0.33.0", size=8)),
    ("ENGINE-EP-DENSE", deployment(LLAMA, size=8, ep=True)),
    ("ENGINE-REMOTE-CODE-NEEDED", deployment(KIMI, args={"trust-remote-code": None})),
    ("ENGINE-REMOTE-CODE-NEEDED", deployment(KIMI, args={"trust-remote-code": False})),
    ("ENGINE-REMOTE-CODE-NEEDED", deployment(KIMI, "0.17.1", args={"trust-remote-code": None})),
    ("ENGINE-MODEL-TOO-NEW", deployment(KIMI, "0.14.1", 8)),
    ("ENGINE-MODEL-TOO-NEW", deployment(DEEPSEEK, "0.10.2", 8)),
    ("ENGINE-SPARSE-MLA", deployment(DEEPSEEK, "0.11.2", 8)),
    # 8 heads a GPU: Triton MLA, which has no FP8 then; AITER MLA of 16 heads has.
    ("ENGINE-KV-DTYPE", deployment(KIMI, "0.17.1", 8, kv_cache_dtype="fp8")),
    ("ENGINE-KV-DTYPE", deployment(DEEPSEEK, "0.14.1", 8, kv_cache_dtype="fp8")),
    ("ENGINE-KV-DTYPE", deployment(DEEPSEEK, "0.20.2", 8, kv_cache_dtype="fp8_e4m3")),
    ("ENGINE-KV-DTYPE", deployment(DEEPSEEK, "0.33.0", 8, kv_cache_dtype="fp8_ds_mla")),
    ("ENGINE-BAD-CHOICE", deployment(version="0.10.2", kv_cache_dtype="bfloat16")),
    ("ENGINE-KV-DTYPE", deployment(version="0.20.2", kv_cache_dtype="fp8_e5m2")),
    ("ENGINE-KV-DTYPE", deployment(version="0.20.2", kv_cache_dtype="fp8_inc")),
    ("ENGINE-KV-DTYPE", deployment(DEEPSEEK, "0.14.1", 8, kv_cache_dtype="fp8_inc")),
    ("ENGINE-KV-DTYPE", deployment(QWEN_BF16, "0.33.0", 8, kv_cache_dtype="float16")),
    (
        "ENGINE-KV-DTYPE",
        deployment(KIMI, "0.14.1", 8, kv_cache_dtype="bfloat16"),
    ),
    ("ENGINE-ATTENTION-BACKEND", deployment(args={"attention-backend": "FLASHINFER"})),
    (
        "ENGINE-ATTENTION-BACKEND",
        deployment(version="0.14.1", args={"attention-backend": "FLASHINFER"}),
    ),
    (
        "ENGINE-ATTENTION-BACKEND",
        deployment(version="0.14.1", args={"attention-backend": "TRITON_MLA"}),
    ),
    ("ENGINE-ATTENTION-BACKEND", deployment(args={"attention-backend": "ROCM_AITER_MLA"})),
    (
        "ENGINE-ATTENTION-BACKEND",
        deployment(DEEPSEEK, "0.20.2", 8, args={"attention-backend": "TRITON_MLA"}),
    ),
    (
        "ENGINE-ATTENTION-BACKEND",
        deployment(
            KIMI,
            "0.24.0",
            8,
            args={"attention-backend": "rocm_attn", "kv-offloading-size": 8},
        ),
    ),
    (
        "ENGINE-ATTENTION-BACKEND",
        deployment(DEEPSEEK, "0.12.0", 8, env={"VLLM_ATTENTION_BACKEND": "FLASHINFER"}),
    ),
    ("ENGINE-BLOCK-SIZE", deployment(args={"block-size": 7})),
    (
        "ENGINE-SAID-TWICE",
        deployment(
            args={
                "attention-backend": "ROCM_ATTN",
                "attention-config": {"backend": "ROCM_ATTN"},
            }
        ),
    ),
    (
        "ENGINE-SAID-TWICE",
        deployment(
            version="0.14.1",
            args={"attention-backend": "ROCM_ATTN"},
            env={"VLLM_ATTENTION_BACKEND": "ROCM_ATTN"},
        ),
    ),
    (
        "ENGINE-SAID-TWICE",
        deployment(
            args={
                "max-cudagraph-capture-size": 256,
                "compilation-config.max_cudagraph_capture_size": 256,
            }
        ),
    ),
    ("ENGINE-QUANTIZATION", deployment(LLAMA, size=8, args={"quantization": "awq"})),
    ("ENGINE-EPLB", deployment(version="0.14.1", size=4, args={"enable-eplb": True})),
    (
        "ENGINE-CHUNKED-PREFILL",
        deployment(
            max_model_len=32768,
            max_num_batched_tokens=8192,
            args={"enable-chunked-prefill": False},
        ),
    ),
    ("ENGINE-CONTEXT-BEYOND", deployment(max_model_len=300_000)),
    (
        "ENGINE-FP4BMM",
        deployment(KIMI, "0.15.1", 4, env={"VLLM_ROCM_USE_AITER_FP4BMM": 1}),
    ),
    ("ENGINE-BLOCK-SIZE", deployment(DEEPSEEK, "0.14.1", 8, args={"block-size": 64})),
    ("ENGINE-BLOCK-SIZE", deployment(DEEPSEEK, "0.14.1", 8, args={"block-size": None})),
    ("ENGINE-BLOCK-SIZE", deployment(args={"block-size": 1})),
    (
        "ENGINE-BLOCK-SIZE",
        deployment(KIMI, "0.33.0", 8, args={"block_size": 1}, env={"VLLM_ROCM_USE_AITER": False}),
    ),
    (
        "ENGINE-AITER-MLA-HEADS",
        deployment(KIMI, "0.15.1", 8, env={"VLLM_ROCM_USE_AITER_MLA": "true"}),
    ),
    ("ENGINE-MLA-OFFLOAD", deployment(KIMI, "0.17.1", 4, args={"kv-offloading-size": 64})),
    ("ENGINE-QUANTIZATION", deployment(args={"quantization": "compressed-tensors"})),
    ("ENGINE-QUANTIZATION", deployment(LLAMA, "0.20.2", 8, args={"q": "fp8_per_tensor"})),
    ("ENGINE-QUANTIZATION", deployment(LLAMA, size=8, args={"quantization": "online"})),
    ("ENGINE-SEQS-ABOVE-TOKENS", deployment(max_num_seqs=512, max_num_batched_tokens=256)),
    (
        "ENGINE-EXPANDABLE-SEGMENTS",
        deployment(env={"PYTORCH_HIP_ALLOC_CONF": "a:1,expandable_segments:True"}),
    ),
]


@pytest.mark.parametrize(
    ("code", "asked"), REFUSED, ids=[f"{code}-{number}" for number, (code, _) in enumerate(REFUSED)]
)
def test_what_cannot_work_is_refused(code, asked):
    assert code in refusal(asked)


@pytest.mark.parametrize(
    "asked",
    [
        deployment(version="0.14.1", size=8, ep=True),  # EP keeps experts whole
        # This version refines the scales, for Triton's kernels alone.
        deployment(version="0.29.0", size=8, env={"VLLM_ROCM_USE_AITER_MOE": 0}),
        deployment(version="0.30.0", size=8, args={"moe-backend": "triton"}),
        # It pads the parts for AITER where that is named.
        deployment(version="0.31.0", size=8, args={"moe-backend": "aiter"}),
        deployment(version="0.14.1", size=4),
        deployment(KIMI, "0.17.1", 4, kv_cache_dtype="fp8"),
        deployment(KIMI, "0.18.1", 4, kv_cache_dtype="fp8"),
        deployment(DEEPSEEK, "0.22.1", 8, kv_cache_dtype="fp8"),
        deployment(KIMI, "0.18.1", 4, args={"kv-offloading-size": 64}),
        deployment(args={"quantization": "fp8"}),
        deployment(LLAMA, "0.14.1", 8, args={"quantization": "fp8"}),
        deployment(size=1, env={"PYTORCH_HIP_ALLOC_CONF": "expandable_segments:True"}),
        deployment(args={"block-size": 64}),
        deployment(QWEN_BF16, size=8),
    ],
)
def test_what_works_is_not_refused(asked):
    assert make(asked).argv[0] == "serve"


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "codes"),
    [
        (40, 10, 4, ["ENGINE-TP-KV-HEADS"]),
        (40, 10, 8, ["ENGINE-TP-KV-HEADS"]),
        (40, 10, 2, []),
        (40, 2, 8, []),  # copied
        (40, 10, 3, ["ENGINE-TP-HEADS"]),  # one cause, one refusal
    ],
)
def test_heads_and_kv_heads_bound_the_split(heads, kv_heads, size, codes):
    model = architecture(
        {
            "model_type": "llama",
            "hidden_size": heads * 64,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "vocab_size": 64,
            "max_position_embeddings": 64,
        },
        "x",
    )
    try:
        recipe(model, deployment("x/y", size=size), "MI325X", 8000)
        found = []
    except ApiaryError as caught:
        found = errors(caught.findings)
    assert found == codes


@pytest.mark.parametrize("version", ["0.28.0", "0.29.0", "0.33.0"])
def test_only_one_format_has_its_scales_refined(version):
    model = known(QWEN)
    scheme = {**model.details["quantization"], "method": "compressed-tensors"}
    details = {**model.details, "quantization": scheme}
    other = dataclasses.replace(model, quantization="compressed-tensors", details=details)
    asked = deployment(version=version, size=8, env={"VLLM_ROCM_USE_AITER_MOE": 0})
    (refused,) = assess(other, asked, "MI325X", 8000).refused
    assert refused.finding.code == "ENGINE-MOE-BLOCK"


# refine_fp8_moe_block_shape of these releases: 1152 / 8 = 144 has 16 in common with a block of 128.
@pytest.mark.parametrize(
    ("version", "args", "env", "refused"),
    [
        ("0.30.0", {}, {}, True),
        ("0.33.0", {}, {"VLLM_ROCM_USE_AITER_MOE": 0}, True),
        ("0.30.0", {"moe-backend": "triton"}, {}, True),
        ("0.33.0", {"moe-backend": "triton"}, {}, False),
    ],
)
def test_fp8_blocks_are_not_refined_below_32(version, args, env, refused):
    model = known(QWEN)
    narrow = dataclasses.replace(model, details={**model.details, "moe_intermediate_size": 1152})
    asked = deployment(version=version, size=8, args=args, env=env)
    codes = [item.finding.code for item in assess(narrow, asked, "MI325X", 8000).refused]
    assert codes == (["ENGINE-MOE-BLOCK"] if refused else [])


def test_all_refusals_come_at_once():
    asked = deployment(size=3, args={"no-such": 1}, env={"VLLM_NO_SUCH": 1})
    assert {"ENGINE-TP-HEADS", "ENGINE-UNKNOWN-FLAG", "ENGINE-UNKNOWN-ENV"} <= set(refusal(asked))


@pytest.mark.parametrize(
    ("width", "layers", "size", "refused"),
    [(256, 2, 2, False), (256, 2, 4, True), (192, 2, 1, False)],
)
def test_fp8_blocks_bound_the_split_of_dense_layers(width, layers, size, refused):
    model = architecture(
        {
            "model_type": "qwen3",
            "hidden_size": 256,
            "intermediate_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 64,
            "max_position_embeddings": 64,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        },
        "x",
    )
    try:
        recipe(model, deployment(size=size), "MI325X", 8000)
        codes = []
    except ApiaryError as caught:
        codes = errors(caught.findings)
    assert codes == (["ENGINE-FFN-SPLIT"] if refused else [])


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "size", "refused"),
    [
        (16, 16, 64, 8, False),  # 128 columns each
        (8, 8, 64, 8, True),  # 64
        (8, 8, 64, 1, False),  # whole
        (32, 4, 64, 8, True),  # one KV head of 64 columns
        (32, 4, 128, 8, False),
    ],
)
def test_fp8_blocks_bound_the_split_of_attention(heads, kv_heads, dim, size, refused):
    model = architecture(
        {
            "model_type": "qwen3",
            "hidden_size": 256,
            "intermediate_size": 1024,
            "num_hidden_layers": 2,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": dim,
            "vocab_size": 64,
            "max_position_embeddings": 64,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        },
        "x",
    )
    found = assess(model, deployment(size=size), "MI325X", 8000)
    codes = [item.finding.code for item in found.refused]
    assert codes == (["ENGINE-ATTENTION-SPLIT"] if refused else [])


def test_fp8_blocks_bound_the_split_of_latent_attention():
    deepseek = known(DEEPSEEK)
    odd = dataclasses.replace(deepseek, heads=200, kv_heads=200)
    found = assess(odd, deployment(DEEPSEEK, "0.33.0", 8), "MI325X", 8000)
    (refused,) = found.refused
    assert refused.rule == "VLLM-ATTENTION-SPLIT"
    assert "4800 columns" in refused.finding.message


def test_int4_groups_bound_the_split_of_experts():
    kimi = known(KIMI)
    details = {**kimi.details, "moe_intermediate_size": 96}
    narrow = dataclasses.replace(kimi, details=details)
    with pytest.raises(ApiaryError, match="in groups of 32"):
        recipe(narrow, deployment(KIMI, size=4), "MI325X", 8000)
    recipe(narrow, deployment(KIMI, size=4, ep=True), "MI325X", 8000)


def test_deprecated_formats_get_the_flag_that_allows_them():
    assert (
        "--allow-deprecated-quantization"
        in make(deployment(LLAMA, "0.14.1", 8, args={"quantization": "ptpc_fp8"})).argv
    )
    assert "ENGINE-BAD-CHOICE" in refusal(
        deployment(LLAMA, "0.33.0", 8, args={"quantization": "ptpc_fp8"})
    )


@pytest.mark.parametrize("version", ["0.9.2", "0.14.1", "0.24.0", "0.32.0", "0.33.0"])
def test_a_kv_format_that_the_version_lacks_is_refused_once(version):
    asked = deployment(version=version, ep=True, kv_cache_dtype="fp9")
    with pytest.raises(ApiaryError) as caught:
        recipe(known(QWEN), asked, "MI325X", 8000)
    assert errors(caught.value.findings) == ["ENGINE-BAD-CHOICE"]
