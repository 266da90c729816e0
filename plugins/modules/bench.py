#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the bench action, which decides on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bench
short_description: Measure engines under load, and evaluate every level
version_added: 0.1.0
description:
  - Runs a benchmark's levels on the task's host, which sends the load, one
    M(apiary.instinct.bench_level) a level; what is next is decided on the controller after each.
  - Every raw result is kept under O(dest) before that. Run again with the same O(dest), it
    goes on where it was interrupted; what was measured is not measured again.
  - A level that is INVALID or FAILED is no failure of the task; RV(findings) tells of it.
  - In check mode nothing is measured, and RV(bench) is not returned.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  name: {description: "What is measured, for a person.", type: str, required: true}
  dest:
    description: A directory on the controller for bench.json and the raw results.
    type: path
    required: true
  urls:
    description: Base addresses of engines or of a router, as the load host reaches them.
    type: list
    elements: str
    required: true
  metrics:
    description: Pages of metrics of the engines behind them.
    type: list
    elements: str
    default: []
  model:
    description: The name that the engines serve; without it the only one they list.
    type: str
    default: ""
  tokenizer: {description: "Path or name of the model's tokenizer on the load host.", type: str}
  gpus: {description: How many GPUs serve., type: int}
  hosts: {description: How many hosts serve., type: int}
  workload: {description: "What a request has, as C(5600/140), or a workload's name.", type: str}
  slo:
    description: Limits, as C(ttft:p90:2s,tpot:p90:50ms). The most requests in flight and the
      highest rate of random arrivals that keep them are searched, or one of them by C(search_by) of
      O(requested).
    type: str
    default: ""
  requested:
    description: Everything that decides which levels there are; fields of C(requested) of a result
      beside O(workload) and O(slo), or a whole one. Without C(seed) a new O(dest) gets its own.
    type: dict
    default: {}
  backend:
    description: The load generator. V(vllm) is C(vllm bench serve).
    type: str
    choices: [vllm, builtin]
    default: vllm
  command:
    description: How C(vllm) of the server's own environment is called on the load host; without it
      by that name.
    type: list
    elements: str
  image: {description: "The server's image, of which the client then runs.", type: str}
  container_engine:
    description: What runs O(image).
    type: str
    choices: [docker, podman]
    default: docker
  version:
    description: The version of vLLM whose client it is; without it the client is asked.
    type: str
  client_cpus:
    description: The client's CPUs, as the kernel writes lists of them; V(apart) are the NUMA nodes
      on which no CPU of O(replica_cpus) is.
    type: str
  replica_cpus:
    description: CPUs to which replicas on the load host are bound.
    type: list
    elements: str
    default: []
  gpu_metrics:
    description: Where GPU power and clocks are from. V(sysfs) where the load host serves, V(none),
      or the address of AMD's exporter.
    type: str
    default: none
  self_test:
    description: Whether the client is tested against a mock at each new level.
    type: bool
    default: true
  session_header:
    description: The header that has a session's key; backend V(builtin) only.
    type: str
  timeout: {description: Seconds after which a level has hung; without it by its size., type: float}
  key_file: {description: "A file on the load host with the engines' key.", type: path}
  plans:
    description: Files on the controller with the plans of what serves. They tell O(gpus), O(hosts),
      O(tokenizer), O(replica_cpus), and for O(environment) plan hash, layout, engine and topology.
    type: list
    elements: path
    default: []
  environment: {description: What else is kept with the results., type: dict, default: {}}
  rules:
    description: Numbers of knowledge/bench/protocol.yml to use instead, for a short run.
    type: dict
    default: {}
  engine_run:
    description: Which engine run this is, from 0. Where the next level needs a further
      one, RV(done) is false; restart them and run again with RV(next_engine_run).
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Measure
  apiary.instinct.bench:
    name: qwen3-235b
    dest: artifacts/bench/qwen3-235b/2026-11-22
    urls: [http://gpu-001:8000, http://gpu-001:8001]
    metrics: [http://gpu-001:8000/metrics, http://gpu-001:8001/metrics]
    workload: 5600/140
    slo: ttft:p90:2s,tpot:p90:50ms
    command: [/opt/vllm/bin/vllm]
  register: measured
"""

RETURN = r"""
done:
  description: Whether everything was measured; false means that engines need a restart first.
  type: bool
  returned: success
next_engine_run:
  description: The engine run that the next level needs.
  type: int
  returned: when not done
bench: {description: The document V(apiary.bench/v2)., type: dict, returned: when done}
findings:
  description: What a person should know, errors first.
  type: list
  elements: dict
  returned: success
path: {description: The file of RV(bench) on the controller., type: str, returned: when done}
summary:
  description: The levels in lines for a person, then what each SLO search found.
  type: list
  elements: str
  returned: when done
"""
