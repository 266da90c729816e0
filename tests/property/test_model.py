# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for every architecture and layout, and that no config.json brings a traceback."""

import contextlib
import copy
import dataclasses
import json
import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout, Limits
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    has_errors,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    architecture,
    known,
    known_names,
    read_config,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.memory import GIB, memory
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.patterns import condense
from hypothesis import given
from hypothesis import strategies as st

from support.engines import deployment
from support.examples import examples
from support.model_zoo import GOLDEN

MODELS = {name: known(name) for name in known_names()}
# Every type that transformers knows, with windows, states, latents and towers of all kinds.
ZOO = {
    name: architecture(case["config"], name)
    for name, case in json.loads(GOLDEN.read_text(encoding="utf-8"))["zoo"].items()
    if name.endswith("default")
}
ANY = st.sampled_from([*MODELS.values(), *ZOO.values()])
NAMES = st.sampled_from(sorted(MODELS))
DTYPES = st.sampled_from(["auto", "fp8"])
SIZES = st.sampled_from([1, 2, 4, 8])


@given(NAMES, DTYPES, st.booleans())
def test_a_larger_tp_never_takes_more_of_a_gpu(name, dtype, ep):
    limits = Limits(max_model_len=1024, kv_cache_dtype=dtype)
    made = [memory(MODELS[name], Layout(size, 1, ep), limits, 256 * GIB) for size in (1, 2, 4, 8)]
    weights = [item.weights_bytes_per_gpu for item in made]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] > weights[-1]
    assert weights[0] <= 8 * weights[-1]  # nothing is split more than 8 times
    cache = [item.kv_bytes_per_token_per_gpu for item in made]
    assert cache == sorted(cache, reverse=True)


@given(ANY, DTYPES, st.booleans())
def test_no_module_takes_more_of_a_gpu_at_a_larger_tp(model, dtype, ep):
    before = None
    for size in (1, 2, 4, 8):
        limits = Limits(1024, kv_cache_dtype=dtype)
        made = memory(model, Layout(size, 1, ep), limits, 256 * GIB)
        sizes = {item.kind: item.bytes_per_gpu for item in made.modules}
        assert sum(sizes.values()) == made.weights_bytes_per_gpu
        for item in made.modules:
            if item.sharding in ("tensor", "vocabulary"):
                assert sizes[item.kind] == pytest.approx(item.bytes_per_gpu, rel=1e-6)
        if before is not None:
            assert all(sizes[kind] <= before[kind] for kind in sizes)
            halved = [item.kind for item in made.modules if item.sharding == "tensor"]
            assert all(before[kind] <= 2 * sizes[kind] for kind in halved)
        before = sizes


@given(
    ANY,
    SIZES,
    DTYPES,
    st.integers(1, 512),
    st.floats(0.05, 1.0),
    st.integers(1, 10**6),
    st.integers(1, 10**5),
)
def test_no_layout_exceeds_the_memory_it_may_use(model, size, dtype, gib, share, length, step):
    limits = Limits(
        max_model_len=length,
        max_num_batched_tokens=step,
        gpu_memory_utilization=share,
        kv_cache_dtype=dtype,
    )
    made = memory(model, Layout(size), limits, gib * GIB)
    if has_errors(made.findings):
        assert not made.max_sequences or made.max_sequences < 1
        return
    spent = made.weights_bytes_per_gpu + made.reserve_bytes_per_gpu
    if made.max_sequences is None:  # the cache is not known, and that is said
        assert "FIT-UNKNOWN" in [item.code for item in made.findings]
        assert spent <= share * gib * GIB
        return
    assert made.max_sequences >= 1
    held = int(made.max_sequences) * made.sequence_bytes_per_gpu
    assert spent + held <= share * gib * GIB
    cache = made.kv_tokens_per_engine * made.kv_bytes_per_token_per_gpu
    assert spent + cache <= share * gib * GIB * (1 + 1e-9)


@given(ANY, SIZES, DTYPES, st.integers(1, 10**5), st.integers(0, 10**5))
def test_a_longer_sequence_never_takes_less(model, size, dtype, length, more):
    limits = Limits(kv_cache_dtype=dtype)
    short, long = (
        memory(model, Layout(size), limits, 256 * GIB, tokens) for tokens in (length, length + more)
    )
    if short.sequence_bytes_per_gpu is None:
        assert long.sequence_bytes_per_gpu is None
        return
    assert short.sequence_bytes_per_gpu <= long.sequence_bytes_per_gpu
    grown = long.sequence_bytes_per_gpu - short.sequence_bytes_per_gpu
    assert grown >= 0
    # What no window bounds grows by its bytes per token, but for the rest of a block.
    assert long.sequence_bytes_per_gpu >= (length + more) * long.kv_bytes_per_token_per_gpu


@given(NAMES, SIZES, st.integers(16, 512), st.floats(0.05, 0.95), st.integers(1, 10**7))
def test_what_a_refusal_proposes_fits(name, size, vram_gib, share, length):
    made = memory(MODELS[name], Layout(size), Limits(length, None, None, share), vram_gib * GIB)
    errors = [finding for finding in made.findings if finding.severity == "error"]
    if not errors or errors[0].remedy == "use GPUs with more memory.":
        return
    for option in errors[0].remedy.split(", or "):
        shares, sizes, lengths = (
            re.findall(rf"{field} to (?:at least )?([0-9]+(?:[.][0-9]+)?(?: or [0-9]+)*)", option)
            for field in ("gpu_memory_utilization", "tensor_parallel_size", "max_model_len")
        )
        assert shares or sizes or lengths
        for other in sizes[0].split(" or ") if sizes else [size]:
            limits = Limits(
                int(lengths[0]) if lengths else length,
                gpu_memory_utilization=float(shares[0]) if shares else share,
            )
            changed = memory(MODELS[name], Layout(int(other)), limits, vram_gib * GIB)
            assert not has_errors(changed.findings)


@given(NAMES, SIZES)
def test_fp8_cache_never_takes_more_than_16_bits(name, size):
    plain, small = (
        memory(MODELS[name], Layout(size), Limits(1024, kv_cache_dtype=dtype), None)
        for dtype in ("auto", "fp8")
    )
    ratio = plain.kv_bytes_per_token_per_gpu / small.kv_bytes_per_token_per_gpu
    assert ratio == 2 or (1 < ratio < 2 and MODELS[name].attention == "sparse_mla")


TYPES = sorted(knowledge("models/families.yml")["families"])
KEYS = [
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "kv_lora_rank"),
    *("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "index_topk"),
    *("num_experts", "n_routed_experts", "num_local_experts", "num_experts_per_tok"),
    *("moe_intermediate_size", "first_k_dense_replace", "decoder_sparse_step", "mlp_only_layers"),
    *("interleave_moe_layer_step", "layer_types", "sliding_window", "full_attention_interval"),
    *("text_config", "vision_config", "quantization_config", "tie_word_embeddings", "dtype"),
    *("quant_method", "modules_to_not_convert", "config_groups", "weight_block_size", "model_type"),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 70)
    | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    SCALARS | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=8,
)
WHOLE = st.fixed_dictionaries({key: st.integers(0, 70) for key in KEYS[:25]})


def attempt(text):
    """Return the architecture, or None and the codes of the refusal."""
    try:
        return read_config(text, "config.json"), ()
    except ApiaryError as refusal:
        return None, [finding.code for finding in refusal.findings]


@given(
    st.sampled_from([*TYPES, "other"]),
    WHOLE | st.just({}),
    st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6),
    SIZES,
)
@examples(6)
def test_any_object_is_read_or_refused_with_a_finding(model_type, whole, changes, size):
    model, codes = attempt(json.dumps({"model_type": model_type, **whole, **changes}))
    if model is None:
        assert codes == ["MODEL-NO-TYPE"]
        return
    made = memory(model, Layout(size), Limits(), 64 * GIB)
    if model.total_parameters is None:
        assert model.findings
        assert made.weights_bytes_per_gpu is None
    else:
        assert model.total_parameters >= 0


def paths(value, prefix=()):
    """Every path of a document, the inner ones too; of a list the first places only."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:3])
    for key, inner in items:
        yield (*prefix, key)
        if isinstance(inner, (dict, list)):
            yield from paths(inner, (*prefix, key))


CONFIGS = {name: knowledge(f"models/{name.replace('/', '--')}.yml")["config"] for name in MODELS}
PATHS = {name: list(paths(config)) for name, config in CONFIGS.items()}
DELETE, NEST, HUGE = object(), object(), "HUGE"
ODD = [
    *(DELETE, NEST, None, 0, -1, 1, "", [], {}, "x", "²", 1.5, 1e308, 2**40, 2**70, HUGE),
    *(True, False, [[]], [{}], [2**70], [0, 0], {"x": "x"}, "re:(", "re:x{99999999999}", "*.²"),
]


def mutated(config, path, value):
    """A copy of the document with one place deleted, wrapped, or set to an odd value."""
    result = copy.deepcopy(config)
    *outer, key = path
    place = result
    try:
        for step in outer:
            place = place[step]
        before = place[key]
    except (KeyError, IndexError, TypeError):  # an earlier mutation took it away
        return result
    if isinstance(place, str):
        return result
    if value is DELETE:
        del place[key]
    else:
        place[key] = {key: before} if value is NEST else value
    return result


MUTATIONS = NAMES.flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.lists(
            st.tuples(st.sampled_from(PATHS[name]), st.sampled_from(ODD)), min_size=1, max_size=3
        ),
    )
)


def as_json(config):
    """The document as JSON; Python itself writes no number of more than 4300 digits."""
    return json.dumps(config).replace(f'"{HUGE}"', "9" * 5000)


@given(MUTATIONS, SIZES, st.booleans(), DTYPES)
@examples(2)
def test_a_spoilt_config_brings_findings_and_no_traceback(case, size, ep, dtype):
    name, mutations = case
    config = CONFIGS[name]
    for path, value in mutations:
        config = mutated(config, path, value)
    model, codes = attempt(as_json(config))
    if model is None:
        assert codes in (["MODEL-NO-TYPE"], ["MODEL-NOT-JSON"])
        return
    made = memory(model, Layout(size, 1, ep), Limits(kv_cache_dtype=dtype), 256 * GIB)
    dumps(dataclasses.replace(model, memory=made)).encode()
    if "MODEL-BAD-VALUE" not in [finding.code for finding in model.findings]:
        assert model.total_parameters is None or model.total_parameters > 0
    asked = deployment(name, size=size, ep=ep, kv_cache_dtype=dtype)
    with contextlib.suppress(ApiaryError):
        recipe(model, asked, "MI325X", 8000)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_with_a_finding(text):
    model, codes = attempt(text)
    assert model is not None or codes in (["MODEL-NOT-JSON"], ["MODEL-NO-TYPE"])


@given(st.integers(1, 12), st.sets(st.integers(0, 11)))
def test_condensing_keeps_what_is_named(layers, named):
    names = [f"model.layers.{layer}.mlp.gate" for layer in sorted(named)]
    short = condense(names, layers)
    if named == set(range(layers)):
        assert short == ["model.layers.*.mlp.gate"]
    else:
        assert short == names
