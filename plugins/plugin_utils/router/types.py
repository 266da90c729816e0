# SPDX-License-Identifier: GPL-3.0-or-later

"""What a router is: its pools of replicas and what an operator sets, `apiary.router/v1`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ..documents import knowledge
from ..findings import Finding


@dataclass(frozen=True)
class Server:
    """One replica as every router knows it, whatever the order in which it heard of it.

    ``name`` is `<host>-<replica>`. ``id`` decides its places on the ring and follows from the name
    alone. ``concurrency`` is how many requests it gets at once, ``weight`` its share (1–256).
    At ``agent_port`` its supervisor tells whether it takes requests; None where that is unknown.
    With ``tls`` it is reached by TLS alone, and is who it says where its certificate has ``host``.
    """

    name: str
    host: str
    replica: int
    address: str
    port: int
    id: int
    concurrency: int
    weight: int
    agent_port: int | None = None
    tls: bool = False


@dataclass(frozen=True)
class Pool:
    """All replicas of one deployment behind one port; ``deployment`` names the HAProxy backend.

    With ``engine_key`` the engines want a key of their own, which a router with keys sends them.
    With ``images`` the model takes images or recordings, so that requests are larger. ``served``
    are the names that its engines answer to.
    """

    deployment: str
    model: str
    port: int
    servers: tuple[Server, ...]
    engine_key: bool = False
    images: bool = False
    served: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.served or (self.model,)


@dataclass(frozen=True)
class Affinity:
    """What keeps a session on its replica, and how uneven that may make them.

    ``keys`` are looked at in order, the first that a request has counts: `header:NAME`,
    `cookie:NAME`, `json:FIELD` (of the request's body), `prompt` (all that a conversation says up
    to the end of its first user message) and `address` (the client's).
    A session leaves its replica for the next one where that has more requests than
    ``balance_percent`` of the average, and more than ``free_percent`` of its concurrency: few
    requests are never too many. ``json_bytes`` is how much of a body `json:` and `prompt` look at.
    """

    keys: tuple[str, ...] = field(
        default_factory=lambda: tuple(knowledge("router.yml")["sessions"]["default"])
    )
    balance_percent: int = 125
    free_percent: int = 25
    json_bytes: int = 262144


@dataclass(frozen=True)
class Queueing:
    """What happens to requests above the limit of every replica.

    ``concurrency`` is the limit of one replica, None for that of its plan; ``per_replica`` how
    many more may wait for each replica of a deployment, ``timeout_seconds`` for how long.
    ``retry_after_seconds`` is what a client is told that was turned away, and by chance up to twice
    that. By the deployment's name: ``within_slo`` is how many requests one replica had at once when
    `apiary bench` found it just within the SLO, ``ttft_seconds`` the SLO's limit of first tokens;
    those that come later than half of it lower their replica's limit.
    """

    concurrency: int | None = None
    per_replica: int = 64
    timeout_seconds: int = 30
    retry_after_seconds: int = 2
    within_slo: dict[str, int] = field(default_factory=dict)
    ttft_seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """How much one client may take of a router, so that it costs the others nothing.

    ``body_bytes`` is the largest body of a request; None is enough for text, or for images and
    recordings where the model takes them. All of a body is at the router within ``body_seconds``
    before a replica hears of it. ``connections_per_source`` are an address's at once, None for a
    quarter of all, and ``requests_per_key`` a key's in work and in the queue; None leaves half of
    the queue to the other keys, where there are any.
    """

    body_bytes: int | None = None
    body_seconds: int = 60
    connections_per_source: int | None = None
    requests_per_key: int | None = None


@dataclass(frozen=True)
class Timeouts:
    """How long a router waits, in seconds.

    ``response`` is the longest silence of a replica: a long prompt answers nothing until its
    prefill is done, and a request that is not streamed nothing until its end.
    """

    connect: int = 3
    request: int = 30
    client: int = 600
    response: int = 3600
    keep_alive: int = 60


@dataclass(frozen=True)
class Health:
    """When a replica is taken out and let in again; times in seconds, counts in a row.

    ``passive_errors`` failed requests in a row (a 5xx, a lost connection) have it checked at the
    fast interval; requests alone never take it out, or one that no replica can answer took out all.
    """

    interval: float = 1.0
    fast_interval: float = 0.1
    down_interval: float = 1.0
    timeout: float = 10.0
    rise: int = 2
    fall: int = 2
    passive_errors: int = 1
    slow_start: float = 30.0


@dataclass(frozen=True)
class Tls:
    """``certificate`` is a file on the router: certificate, chain and private key."""

    certificate: str = "/etc/haproxy/apiary/tls.pem"
    minimum: str = "TLSv1.2"


@dataclass(frozen=True)
class ApiKey:
    """Who may ask: a ``name`` for logs, the key's SHA-256 in hex, requests a minute and at once.

    ``priority`` (high, normal, low) says whose new sessions an overload refuses last.
    """

    name: str
    sha256: str
    requests_per_minute: int | None = None
    concurrent_requests: int | None = None
    priority: str = "normal"


@dataclass(frozen=True)
class RouterTracing:
    """Which requests engines trace, and whose trace ids are in the router's log lines.

    ``ratio`` is the share of requests traced. With ``trust_clients`` a client's own trace goes on,
    and the client has decided whether it is sampled.
    """

    ratio: float = 1.0
    trust_clients: bool = True


@dataclass(frozen=True)
class Experiment:
    """Another ``deployment`` of the same models, and the share of ``sessions`` (0 to 1) it gets."""

    deployment: str
    sessions: float


@dataclass(frozen=True)
class RouterSettings:
    """Everything about a router that an operator sets.

    ``listen`` are its addresses, ``ports`` the deployments' ports where they are not counted up
    from ``first_port`` in the order of their names; one that has a port keeps it. At
    ``shared_port`` the model that a request names decides. Without ``keys`` everybody may ask.
    ``experiments`` are by the deployment whose sessions they divide.
    ``admin_listen`` and ``admin_port`` serve `/metrics` and `/health`; ``paths``
    are more paths that clients may reach. ``active_routers`` share the replicas' concurrency.
    ``allow_removed`` lets most replicas of a deployment go at once. ``name_replica`` tells clients
    which replica answered (`X-Apiary-Replica`). ``version`` is of the HAProxy that is installed.
    ``cpus`` is a cpulist, None for all.
    """

    listen: tuple[str, ...] = ("*",)
    first_port: int = 8080
    ports: dict[str, int] = field(default_factory=dict)
    shared_port: int | None = None
    affinity: Affinity = field(default_factory=Affinity)
    queueing: Queueing = field(default_factory=Queueing)
    limits: Limits = field(default_factory=Limits)
    timeouts: Timeouts = field(default_factory=Timeouts)
    health: Health = field(default_factory=Health)
    tls: Tls | None = None
    keys: tuple[ApiKey, ...] = ()
    paths: tuple[str, ...] = ()
    admin_listen: str = "127.0.0.1"
    admin_port: int = 8405
    active_routers: int = 1
    allow_removed: bool = False
    name_replica: bool = False
    connections: int = 20000
    threads: int | None = None
    cpus: str | None = None
    log: str = "/dev/log"
    version: str = "2.6"
    tracing: RouterTracing | None = None
    experiments: dict[str, Experiment] = field(default_factory=dict)


@dataclass(frozen=True)
class Router:
    """One router's whole task; all routers of a fleet get the same."""

    SCHEMA: ClassVar[str] = "apiary.router/v1"

    settings: RouterSettings
    pools: tuple[Pool, ...]
    findings: tuple[Finding, ...] = ()
