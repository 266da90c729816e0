# SPDX-License-Identifier: GPL-3.0-or-later

"""The engines that a deployment could be made of: each size's recipe, memory and refusals.

What engines measured of themselves counts on their host, where a plan computes otherwise. Only
for the very recipe, release and GPU model, and only what is credible: a host says it of itself.
What an earlier plan has stays while new figures agree with it, so that no restart of an engine
changes a plan.
"""

from __future__ import annotations

import dataclasses
import datetime
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..deployment import Deployment, Layout, MixedLayout
from ..documents import knowledge
from ..engine.command import read_command
from ..engine.conditions import Fact
from ..engine.facts import ALONE, NodeRank, as_loaded, with_profile
from ..engine.recipe import recipe
from ..engine.review import flags_of
from ..engine.types import Recipe
from ..findings import ApiaryError, Finding, errors_of
from ..model.memory import memory, quantized_online
from ..model.types import Architecture, Memory
from ..topology.types import Start
from .types import Plan, Replica

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Engine:
    """One engine of a size: what it takes up, or what refuses it.

    ``sequences`` is how many of the stated (else the longest) length its KV pool holds.
    """

    recipe: Recipe | None
    memory: Memory | None
    sequences: float | None
    refusals: tuple[Finding, ...]


class Engines:
    """The engines of one deployment on GPUs of ``vram_bytes`` each; each size is tried once.

    ``offload_gib`` is what each GPU's part of its NUMA node has for KV offload.
    """

    def __init__(
        self,
        deployment: Deployment,
        architecture: Architecture,
        gpu_model: str | None,
        vram_bytes: int | None,
        sequence_tokens: int | None = None,
        offload_gib: float | None = None,
    ) -> None:
        self.offload_gib = offload_gib
        self.deployment, self.architecture = deployment, architecture
        self.gpu_model, self.vram_bytes = gpu_model, vram_bytes
        self.sequence_tokens = sequence_tokens
        self.limits = with_profile(deployment).limits
        self._tried: dict[tuple[int, bool], Engine] = {}

    @property
    def dense(self) -> bool:
        """Say whether the model is known to have no experts."""
        return self.architecture.family == "dense"

    @property
    def active_share(self) -> float | None:
        """Return the part of a layer's experts that one token activates."""
        experts, active = self.architecture.experts, self.architecture.experts_per_token
        return active / experts if experts and active else None

    @property
    def given(self) -> int | None:
        """Return the bytes of one GPU that an engine may use."""
        if self.vram_bytes is None:
            return None
        return int(self.limits.gpu_memory_utilization * self.vram_bytes)

    def of(self, size: int, expert_parallel: bool) -> Engine:
        """Return the engine of so many GPUs."""
        requested = (size, expert_parallel)
        if requested not in self._tried:
            self._tried[requested] = self._try(Layout(size, 1, expert_parallel))
        return self._tried[requested]

    def _try(self, layout: Layout) -> Engine:
        try:
            recipe = self.recipe(layout, self.deployment.base_port)
        except ApiaryError as refusal:
            return Engine(None, None, None, errors_of(refusal.findings))
        needs = self.memory_of(recipe, layout)
        sequences = needs.max_sequences
        if self.sequence_tokens is not None:
            sequences = self.memory_of(recipe, layout, self.sequence_tokens).max_sequences
        return Engine(recipe, needs, sequences, errors_of(needs.findings))

    def recipe(self, layout: Layout, port: int, node: NodeRank = ALONE) -> Recipe:
        """Return the command of one engine; raises ApiaryError with every refusal."""
        features = self.deployment.features
        if features.kv_offload_gib == "auto" and self.offload_gib is not None:
            whole = int(self.offload_gib * layout.gpus)
            features = dataclasses.replace(features, kv_offload_gib=whole)
        deployment = dataclasses.replace(self.deployment, layout=layout, features=features)
        return recipe(self.architecture, deployment, self.gpu_model, port, node)

    def memory_of(
        self, recipe: Recipe, layout: Layout, sequence_tokens: int | None = None
    ) -> Memory:
        """Return what engines of a layout take up with a recipe's flags and variables."""
        command = read_command(shlex.join(("vllm", *recipe.argv)), recipe.rules_of)
        flags = flags_of(command, recipe.rules_of)
        if self.deployment.features.text_only:
            flags["flag mm_encoder_tp_mode"] = "none"
        return self.memory(layout, recipe.rules_of, recipe.env, flags, sequence_tokens)

    def memory(
        self,
        layout: Layout,
        version: str,
        env: Mapping[str, str],
        flags: Mapping[str, Fact],
        sequence_tokens: int | None = None,
    ) -> Memory:
        """Return what engines of a layout take up; ``flags`` as of engine.review.flags_of."""
        loaded = as_loaded(self.architecture, version, self.gpu_model, env, flags)
        if method := flags.get("flag quantization"):
            loaded = quantized_online(loaded, str(method))
        return memory(loaded, layout, self.limits, self.vram_bytes, sequence_tokens)

    def memories(self, layout: Layout | MixedLayout, recipes: Sequence[Recipe]) -> list[Memory]:
        """Return what each replica's engine takes up; per host that counts its own kind only."""
        needs: dict[Layout, Memory] = {}
        for engine, its_recipe in zip(layout.engines, recipes, strict=True):
            if engine not in needs:
                alike = dataclasses.replace(engine, replicas=layout.engines.count(engine))
                needs[engine] = self.memory_of(its_recipe, alike)
        return [needs[engine] for engine in layout.engines]

    def common_refusals(self) -> tuple[Finding, ...]:
        """Return the refusals that every engine tried so far has, word by word."""
        tried = [engine.refusals for engine in self._tried.values()]
        first = tried[0] if tried else ()
        return tuple(refusal for refusal in first if all(refusal in refusals for refusals in tried))

    def remedy(self) -> str:
        """Return what the largest engine's refusals say to do; empty without a refusal."""
        refused = [
            (requested, engine.refusals)
            for requested, engine in self._tried.items()
            if engine.refusals
        ]
        if not refused:
            return ""
        (size, _expert_parallel), refusals = max(refused, key=lambda item: item[0])
        return f"for TP{size}, " + "; ".join(
            dict.fromkeys(refusal.remedy.rstrip(".") for refusal in refusals)
        )


def of_host(needs: Sequence[Memory]) -> Memory:
    """Return the first replica's memory, with the totals of all replicas of the host."""
    tokens = [need.kv_tokens_per_engine for need in needs]
    sequences = [need.max_sequences for need in needs]
    return dataclasses.replace(
        needs[0],
        kv_tokens_per_host=_total(tokens),
        max_sequences_per_host=_total(sequences),
        findings=tuple(dict.fromkeys(finding for need in needs for finding in need.findings)),
    )


def _total(values: Sequence[N | None]) -> N | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers[1:], numbers[0]) if numbers and len(numbers) == len(values) else None


def argument(argv: tuple[str, ...], flag: str) -> str | None:
    """Return the value that follows a flag, or stands behind its `=`; None where it is not."""
    for word, after in zip(argv, (*argv[1:], None), strict=True):
        if word == flag:
            return after
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


# A figure of a start, that of a layout's memory, both in words, and bytes that one takes at least.
_FIGURES = (
    ("kv_tokens", "kv_tokens_per_engine", "{:,.0f} tokens of KV cache a replica", 1, 256),
    ("weights_bytes_per_gpu", "weights_bytes_per_gpu", "{:,.1f} GiB of weights a GPU", 2**30, 1),
)
_ANSWERED = ("FIT-NO-ROOM", "FIT-RESERVE-ASSUMED", "FIT-UNKNOWN")


def start_of(
    replica: Replica, version: str, gpu_model: str | None, now: Sequence[Start], before: Plan | None
) -> Start | None:
    """Return the figures of a replica's recipe: the worst start's, or those of the plan before."""
    same = (replica.recipe, version, gpu_model)
    fresh, old = (
        [one for one in starts if (one.recipe, one.engine_version, one.gpu_model) == same]
        for starts in (now, before.measured if before else ())
    )
    worst = min(fresh, key=lambda one: one.kv_tokens or 0, default=None)
    if old and not (worst and any(_differ(worst, row[0], old[0], row[0]) for row in _FIGURES)):
        return old[0]
    return worst


def counted(needs: Memory, start: Start | None, host: str, given: int | None) -> Memory:
    """Return a layout's memory with the figures of a start that are not as computed.

    ``given`` are the bytes of a GPU that an engine may use.
    """
    other = [row for row in _FIGURES if start and _differ(start, row[0], needs, row[1])]
    if start is None or not other:
        return needs
    most, texts, wrong = knowledge("serving/life.yml")["figures"]["credible"], [], False
    for name, field, form, unit, least in other:
        figure, own = getattr(start, name), getattr(needs, field)
        texts.append(form.format(figure / unit) + (f" (computed {own / unit:,.1f})" if own else ""))
        wrong = wrong or figure * least > (given or 0) * (needs.gpus_per_engine or 1)
        wrong = wrong or (bool(own) and not 1 / most <= figure / own <= most)
    day = datetime.datetime.fromtimestamp(start.at, datetime.UTC)
    source = f"measured on {host} at {day:%Y-%m-%d %H:%M} UTC by {start.unit}"
    code = "FIT-MEASURED-ODD" if wrong else "FIT-MEASURED"
    note = Finding(code, host, f"{' and '.join(texts)}: {source}", source=source)
    if wrong:
        return dataclasses.replace(needs, findings=(*needs.findings, note))
    kept = (one for one in needs.findings if one.code not in _ANSWERED)
    tokens, own = start.kv_tokens, needs.kv_tokens_per_engine
    if tokens is not None and own:
        parts = ("kv_pool_bytes_per_gpu", "kv_tokens_per_host", "max_sequences")
        scaled = {name: getattr(needs, name) for name in (*parts, "max_sequences_per_host")}
        scaled = {
            name: value and type(value)(value * tokens / own) for name, value in scaled.items()
        }
        needs = dataclasses.replace(needs, **scaled)
    changes = {field: getattr(start, name) for name, field, *_words in other}
    return dataclasses.replace(needs, **changes, reserve_bytes_per_gpu=None, findings=(*kept, note))


def _differ(one: object, name: str, other: object, its: str) -> bool:
    """Say whether one has a figure that the other has not, within the tolerance."""
    tolerance: float = knowledge("serving/life.yml")["figures"]["tolerance"]
    figure, own = getattr(one, name), getattr(other, its)
    return figure is not None and not (own and abs(figure - own) <= tolerance * own)
