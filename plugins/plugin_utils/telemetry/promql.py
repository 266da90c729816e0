# SPDX-License-Identifier: GPL-3.0-or-later

"""Labels of every series, expressions with placeholders to PromQL, and rule files as YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from ..documents import YAML_LOADER
from ..render.unit import templates

# What a host's series carry.
HOST = ("host", "rack", "failure_domain")
# What an engine's carry: the replica's index as text, and the NUMA node of its CPUs and memory.
REPLICA = ("deployment", *HOST, "replica", "numa_node")
# What a GPU's carry; `gpu` is the BDF (#partition behind it where GPUs are cut), `gpu_id` AMD's
# number of today. deployment and replica are those that have the GPU now.
GPU = (*HOST, "gpu", "gpu_id", "numa_node", "hive", "deployment", "replica")
DEPLOYMENT = ("deployment",)
# A router's host, and the deployment whose requests it takes.
ROUTER = ("host", "deployment")

SETS: dict[str, tuple[str, ...]] = {
    "deployment": DEPLOYMENT,
    "gpu": GPU,
    "host": HOST,
    "replica": REPLICA,
    "router": ROUTER,
}

# The jobs of Prometheus; each is a file of targets. PLAIN: node_exporters without TLS, as `node`.
ENGINE, HAPROXY, AMD, NODE, PLAIN = "vllm", "haproxy", "amd-metrics", "node", "node-plain"
PROMETHEUS, ALERTMANAGER = "prometheus", "alertmanager"
JOBS = (ENGINE, HAPROXY, AMD, NODE, PLAIN, PROMETHEUS, ALERTMANAGER)

_PLACEHOLDER = re.compile(r"%\{([a-z_:]+)\}")
# What systems show to whoever opens a file of ours.
MANAGED = "# Managed by Apiary: written from the plans; changes here are overwritten.\n"


# A group of rules as a rule file has it: name, rules, and interval where it is its own.
Group = Mapping[str, Any]


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text with each `%{name}` replaced: a label set's labels, or one of ``values``."""
    replacements = {**{name: ", ".join(labels) for name, labels in SETS.items()}, **values}
    return _PLACEHOLDER.sub(lambda match: replacements[match[1]], text)


def number(value: float) -> str:
    """Return a number as PromQL takes it: 2, 0.05, never 1e-05."""
    text = f"{value:.12f}".rstrip("0").rstrip(".")
    return text or "0"


def bound(value: float) -> str:
    """Return a histogram's bound as Python's prometheus_client writes it: 1.0, 0.25."""
    return repr(float(value))


def quoted(text: str) -> str:
    """Return a string of PromQL."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def rule_file(groups: Sequence[Group]) -> str:
    """Return a file of rules for Prometheus; a group without rules is not in it."""
    return document({"groups": [group for group in groups if group["rules"]]})


def document(data: Any) -> str:
    """Return YAML with our mark, keys in the order given, no line folded."""
    return MANAGED + yaml.dump(
        data, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100_000
    )


def read_template(name: str, **values: Any) -> Any:
    """Return what the YAML says that a template makes of ``values``."""
    template = templates().get_template(f"monitoring/{name}.j2")
    return yaml.load(template.render(**values), Loader=YAML_LOADER)  # noqa: S506 - a safe loader


def configuration(name: str, **values: Any) -> str:
    """Return a program's configuration, of which a template has all that is not ``values``."""
    return document(read_template(name, **values))


class _Plain(yaml.SafeDumper):
    """No anchors: Prometheus would read them, people would not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def words(texts: Iterable[str]) -> str:
    """Return names for a sentence: sorted, with commas."""
    return ", ".join(sorted(texts))


def known(**labels: str | None) -> dict[str, str]:
    """Return the labels that have a value, sorted; an empty one is none to Prometheus."""
    return {name: value for name, value in sorted(labels.items()) if value}
