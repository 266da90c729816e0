# SPDX-License-Identifier: GPL-3.0-or-later

"""What the operator asks for, checked in shape alone: `apiary.deployment/v1`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from ..module_utils.replicas.smoke import certificate
from .documents import knowledge
from .findings import Finding, error


@dataclass(frozen=True)
class ModelSpec:
    """Which weights: the hub ``name`` clients ask for and the ``path`` they lie at on the host.

    ``config`` is the model's config.json on the controller, relative to where the run starts.
    ``read_mb_per_second`` is how fast a host reads the weights; a start may take accordingly long.
    """

    name: str
    path: str
    config: str | None = None
    read_mb_per_second: int | None = None


@dataclass(frozen=True)
class Layout:
    """How a host is cut: ``replicas`` independent engines of ``tensor_parallel_size`` GPUs each.

    With ``expert_parallel`` the expert-parallel size is the engine's own TP size (EP = TP), so
    two replicas of TP4 are DP2/TP4/EP4 with nothing shared between them. An engine has
    ``pipeline_parallel_size`` times as many GPUs, spread evenly over ``nodes`` hosts.
    """

    tensor_parallel_size: int
    replicas: int = 1
    expert_parallel: bool = False
    pipeline_parallel_size: int = 1
    nodes: int = 1

    @property
    def gpus(self) -> int:
        """Return the GPUs of one engine, on all of its hosts."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the GPUs of each replica on one host."""
        return (self.gpus // max(self.nodes, 1),) * self.replicas

    @property
    def engines(self) -> tuple[Layout, ...]:
        """Return each replica's engine alone."""
        return (replace(self, replicas=1),) * self.replicas


@dataclass(frozen=True)
class MixedLayout:
    """A host cut into unequal engines: one replica of each of ``sizes`` GPUs, in this order."""

    sizes: tuple[int, ...]
    expert_parallel: bool = False

    @property
    def replicas(self) -> int:
        return len(self.sizes)

    @property
    def engines(self) -> tuple[Layout, ...]:
        """Return each replica's engine alone."""
        return tuple(Layout(size, 1, self.expert_parallel) for size in self.sizes)


Open = Literal["auto"]


@dataclass(frozen=True)
class AutoLayout:
    """A layout that the plan chooses for each host; what is named here stays as it is.

    At least ``spare`` GPUs stay free. ``concurrency`` is how many requests the host has at once,
    ``sequence_tokens`` what one of them has, prompt and answer; both only order what is possible.
    """

    tensor_parallel_size: int | Open = "auto"
    replicas: int | Open = "auto"
    expert_parallel: bool | Open = "auto"
    spare: int = 0
    concurrency: int | None = None
    sequence_tokens: int | None = None


Runtime = Literal["native", "quadlet", "docker"]


@dataclass(frozen=True)
class EngineSpec:
    """Which engine runs: its version decides the recipe, ``executable`` starts it on the host.

    ``image`` has the engine where it runs in a container instead: a reference, best by digest;
    ``runtime`` says which program runs it: none (native), Podman by systemd (quadlet), or Docker.
    ``args`` and ``env`` are the operator's overrides by flag and variable name; ``None`` drops
    an element. ``treat_as`` names the known version whose rules an unknown one gets. ``aiter`` and
    ``rocm`` are the versions in the engine's environment, where the image does not say.
    """

    version: str
    executable: str = "/opt/vllm/bin/vllm"
    image: str | None = None
    name: str = "vllm"
    runtime: Runtime = "native"
    treat_as: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    aiter: str | None = None
    rocm: str | None = None


@dataclass(frozen=True)
class Limits:
    """What the engine is sized for; tokens, sequences and a share of VRAM.

    Without ``start_timeout_seconds`` a start may take what the weights need (plan/replica.py);
    an engine with requests that makes no token for ``hang_timeout_seconds`` is restarted. Each
    replica is sent ``quality_questions_per_hour`` questions whose answers are known; 0 for none.
    """

    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_dtype: str = "auto"
    start_timeout_seconds: int | None = None
    drain_timeout_seconds: int = 60
    hang_timeout_seconds: int | None = None
    quality_questions_per_hour: int = 8


@dataclass(frozen=True)
class Features:
    """What an engine offers beside completions; `auto` is what upstream's recipe of the model says.

    ``chat_template`` and ``draft_model`` lie on the hosts. ``speculation`` is `auto` (only where a
    gain is published for the GPU at so many requests), `mtp` (the checkpoint's own layers),
    `ngram`, `draft` (``draft_model``) or `none`. ``kv_offload_gib`` is host memory of one engine;
    `auto` is half of what its GPUs' NUMA nodes have.
    """

    tool_calling: bool | Open = "auto"
    reasoning: bool | Open = "auto"
    chat_template: str | None = None
    text_only: bool = False
    encoder_data_parallel: bool | Open = "auto"
    speculation: Literal["auto", "none", "mtp", "ngram", "draft"] = "auto"
    draft_model: str | None = None
    eplb: bool = False
    kv_offload_gib: int | Open = 0


@dataclass(frozen=True)
class Tracing:
    """Where each replica sends the spans of its requests: an OpenTelemetry collector's URL.

    ``protocol`` is OTLP's; with `grpc` the URL ends with the port (4317), with `http/protobuf` it
    is the whole one (`…:4318/v1/traces`). ``ratio`` is the share of requests traced among those
    that come without a router's or client's decision.
    """

    endpoint: str
    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    ratio: float = 1.0


@dataclass(frozen=True)
class Deployment:
    """What the operator asks for; one document for a whole group of hosts.

    ``profile`` (engine/profiles.py) fills limits that are left open, and orders the layouts of an
    open one. ``force`` names rules whose refusals shall be warnings. ``secrets`` names variables
    that the engine gets from credentials on the host; their values are in no document. ``user`` is
    an account of the operator's; without one the deployment has its own. With ``tls`` replicas
    speak HTTPS alone, each host with a certificate of its own.
    """

    SCHEMA: ClassVar[str] = "apiary.deployment/v1"

    name: str
    model: ModelSpec
    engine: EngineSpec
    layout: Layout | MixedLayout | AutoLayout | Open
    limits: Limits = field(default_factory=Limits)
    listen_address: str = "0.0.0.0"  # noqa: S104 - the router is on another host
    base_port: int = 8000
    user: str | None = None
    profile: str | None = None
    force: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    tracing: Tracing | None = None
    tls: bool = False
    features: Features = field(default_factory=Features)

    @property
    def credentials(self) -> tuple[str, ...]:
        """Return the names of all files that systemd hands to the supervisor."""
        return (*self.secrets, *((certificate(self.name),) if self.tls else ()))

    @property
    def account(self) -> str:
        """Return the user that the engines run as."""
        return self.user or own_user(self.name)

    @property
    def decided(self) -> Layout:
        """Return the layout of equal engines; raises DEPLOY-LAYOUT-OPEN where it is another."""
        if isinstance(self.layout, Layout):
            return self.layout
        raise error(
            "DEPLOY-LAYOUT-OPEN",
            "layout",
            "no one recipe holds: the engines of this deployment differ by host or by replica",
        )


def own_user(deployment: str) -> str:
    """Return the system user of a deployment alone, whom the role replicas makes.

    A name that is too long is cut and has a digest, after a sign that no deployment's name has.
    """
    name = f"apiary-{deployment}"
    digest = hashlib.sha256(deployment.encode()).hexdigest()[:8]
    return name if len(name) <= LONGEST_USER else f"{name[: LONGEST_USER - 9]}_{digest}"


# utmp(5) has 32 bytes with the last one empty; ps and others show a longer name as a number.
LONGEST_USER = 31
# Eight GPUs of eight partitions each; render minors end there too.
MOST_DEVICES = 64
MOST_OFFLOAD_GIB = 65536
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_PATH = re.compile(r"/[^\x00-\x20\x7f]*")
_ADDRESS = re.compile(r"[A-Za-z0-9:.-]+")
# registry[:port]/path[:tag][@digest]; names are lower-case, tags need not be
_IMAGE = re.compile(
    r"(?=.{1,400}\Z)([A-Za-z0-9.-]+(:\d+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_VERSION = re.compile(r"\d+(\.\d+){0,2}(\.post\d+)?", re.ASCII)
_ENGINES = ("vllm",)
# No user and password, which would show in process lists: scheme, host or [IPv6], port, path.
COLLECTOR = re.compile(
    r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9_./~-]*)?", re.ASCII
)


def _bad(field: str, value: object, expected: str) -> Finding:
    return Finding(
        "DEPLOY-VALUE", field, f"is {value!r}, expected {expected}", field=field, allowed=expected
    )


def check_deployment(deployment: Deployment) -> tuple[Finding, ...]:
    """Return a refusal for each field that cannot be meant: DEPLOY-VALUE, DEPLOY-SECRET."""
    return (*_findings(deployment), *_secrets(deployment))


def _findings(deployment: Deployment) -> Iterator[Finding]:
    limits, engine = deployment.limits, deployment.engine
    yield from _layout(deployment)
    positive = {
        "limits.max_model_len": limits.max_model_len,
        "limits.max_num_batched_tokens": limits.max_num_batched_tokens,
        "limits.max_num_seqs": limits.max_num_seqs,
        "limits.start_timeout_seconds": limits.start_timeout_seconds,
        "limits.hang_timeout_seconds": limits.hang_timeout_seconds,
        "model.read_mb_per_second": deployment.model.read_mb_per_second,
    }
    for path, number in positive.items():
        if number is not None and number < 1:
            yield _bad(path, number, "a whole number of at least 1")
    if limits.drain_timeout_seconds < 0:
        yield _bad("limits.drain_timeout_seconds", limits.drain_timeout_seconds, "0 or more")
    if not 0 <= limits.quality_questions_per_hour <= 3600:
        count = limits.quality_questions_per_hour
        yield _bad("limits.quality_questions_per_hour", count, "0 to 3600")
    if not 0 < limits.gpu_memory_utilization <= 1:
        share = limits.gpu_memory_utilization
        yield _bad("limits.gpu_memory_utilization", share, "a number above 0 and at most 1")
    texts = {
        "name": (deployment.name, _NAME, "lower-case letters, digits and dashes"),
        "user": (deployment.user or "root", _USER, "a user name"),
        "listen_address": (deployment.listen_address, _ADDRESS, "an address or host name"),
        "model.path": (deployment.model.path, _PATH, "an absolute path without spaces"),
        "engine.executable": (engine.executable, _PATH, "an absolute path without spaces"),
        "engine.aiter": (engine.aiter or "0", _VERSION, "a version such as 0.1.19"),
        "engine.rocm": (engine.rocm or "0", _VERSION, "a version such as 7.2.3"),
    }
    features = deployment.features
    for name in ("chat_template", "draft_model"):
        if path := getattr(features, name):
            texts[f"features.{name}"] = (path, _PATH, "an absolute path without spaces")
    if features.kv_offload_gib != "auto" and not 0 <= features.kv_offload_gib <= MOST_OFFLOAD_GIB:
        most = f"auto, or a number from 0 to {MOST_OFFLOAD_GIB}"
        yield _bad("features.kv_offload_gib", features.kv_offload_gib, most)
    for path, (text, pattern, expected) in texts.items():
        if not pattern.fullmatch(text):
            yield _bad(path, text, expected)
    if not deployment.model.name.strip() or deployment.model.name.startswith("-"):
        yield _bad("model.name", deployment.model.name, "the name that clients ask for")
    if engine.image is not None and not _IMAGE.fullmatch(engine.image):
        yield _bad("engine.image", engine.image, "an image: registry/name:tag@sha256:digest")
    if engine.name not in _ENGINES:
        yield _bad("engine.name", engine.name, " or ".join(_ENGINES))
    profiles = knowledge("vllm/profiles.yml")["profiles"]
    if deployment.profile is not None and deployment.profile not in profiles:
        yield _bad("profile", deployment.profile, f"one of {', '.join(profiles)}")
    if deployment.tracing is not None:
        yield from _tracing(deployment.tracing)


def _tracing(tracing: Tracing) -> Iterator[Finding]:
    """Refuse what OpenTelemetry's exporters would not reach, or send to a page that is none."""
    url = COLLECTOR.fullmatch(tracing.endpoint)
    if url is None:
        yield _bad("tracing.endpoint", tracing.endpoint, "a URL such as http://collector:4317")
    elif tracing.protocol == "http/protobuf" and (url[3] or "/") == "/":
        whole = f"{tracing.endpoint.rstrip('/')}/v1/traces"
        yield _bad("tracing.endpoint", tracing.endpoint, f"the whole URL, often {whole}")
    if not 0 <= tracing.ratio <= 1:
        yield _bad("tracing.ratio", tracing.ratio, "a number from 0 to 1")


def _layout(deployment: Deployment) -> Iterator[Finding]:
    """Refuse sizes and numbers that no host has, and ports that would run out."""
    layout = deployment.layout
    most = f"at most {MOST_DEVICES}, the devices a host can have"
    numbers: dict[str, int | str | None] = {}
    replicas = MOST_DEVICES
    if isinstance(layout, MixedLayout):
        replicas = layout.replicas
        numbers = {f"sizes[{index}]": size for index, size in enumerate(layout.sizes)}
        if not layout.sizes:
            yield _bad("layout.sizes", [], "the GPUs of at least one replica")
        elif sum(layout.sizes) > MOST_DEVICES:
            yield _bad("layout.sizes", list(layout.sizes), most)
    elif isinstance(layout, Layout):
        names = ("tensor_parallel_size", "replicas", "pipeline_parallel_size", "nodes")
        numbers = {name: getattr(layout, name) for name in names}
        replicas = layout.replicas
        if layout.nodes > 0 and layout.gpus % layout.nodes:
            shares = f"a divisor of {layout.gpus}, the GPUs of one replica"
            yield _bad("layout.nodes", layout.nodes, shares)
    elif isinstance(layout, AutoLayout):
        numbers = {name: getattr(layout, name) for name in ("tensor_parallel_size", "replicas")}
        if isinstance(layout.replicas, int):
            replicas = layout.replicas
    for name, number in numbers.items():
        if isinstance(number, int) and number < 1:
            yield _bad(f"layout.{name}", number, "a whole number of at least 1")
        elif isinstance(number, int) and number > MOST_DEVICES:
            yield _bad(f"layout.{name}", number, most)
    if isinstance(layout, AutoLayout):
        if not 0 <= layout.spare < MOST_DEVICES:
            yield _bad("layout.spare", layout.spare, f"a number from 0 to {MOST_DEVICES - 1}")
        for name in ("concurrency", "sequence_tokens"):
            wanted = getattr(layout, name)
            if wanted is not None and wanted < 1:
                yield _bad(f"layout.{name}", wanted, "a whole number of at least 1")
    last = deployment.base_port + min(max(replicas, 1), MOST_DEVICES) - 1
    if not 1024 <= deployment.base_port <= last <= 65535:
        ports = f"a port from 1024 to {65535 - last + deployment.base_port}"
        yield _bad("base_port", deployment.base_port, ports)


def _secrets(deployment: Deployment) -> Iterator[Finding]:
    """Refuse what would put a secret into a unit file, a process list or a diff."""
    rules = knowledge("serving.yml")["secrets"]
    named = [f"engine.env.{name}" for name in deployment.engine.env]
    named += [f"engine.args.{name}" for name in deployment.engine.args]
    for path in named:
        name = path.rpartition(".")[2].lstrip("-").replace("-", "_").upper()
        if any(re.fullmatch(pattern, name) for pattern in rules["patterns"]):
            yield Finding(
                "DEPLOY-SECRET",
                path,
                "looks like a secret, which would show in unit files, process lists and diffs",
                source=rules["source"],
            )
