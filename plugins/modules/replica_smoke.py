#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""See that a replica really answers, and as it did before."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.finding import ApiaryError, Finding, error, fail
from ..module_utils.quality import Client, QualityError, measure, revision_of
from ..module_utils.replicas import smoke
from ..module_utils.replicas.smoke import certificate

_KEY = "VLLM_API_KEY"
_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - addresses to compare with


def read_key(path, unit) -> str:
    """Return the first key; if none can be read that is a refusal: every request would fail."""
    try:
        with open(path, encoding="utf-8", newline="\n") as stream:
            return stream.readline().strip()
    except (OSError, ValueError) as failure:
        reason = getattr(failure, "strerror", None) or "no text"
        message = f"the key in {path} cannot be read: {reason}"
        raise error("ROLLOUT-SMOKE-FAILED", unit, message) from None


def request_of(plan, unit, directory) -> tuple:
    """Return where a replica of a plan answers, as module_utils/quality takes it, and its key."""
    deployment = plan["deployment"]
    address = deployment["listen_address"]
    secrets = os.path.join(directory, deployment["name"], "credentials")
    # A wildcard address listens on loopback too.
    address = "127.0.0.1" if address in _EVERYWHERE else address
    address = f"[{address}]" if ":" in address else address
    port = next(item["port"] for item in plan["replicas"] if item["unit"] == unit)
    tls = deployment.get("tls")
    request = {
        "url": f"{'https' if tls else 'http'}://{address}:{port}",
        "model": deployment["model"]["name"],
        "authority": os.path.join(secrets, certificate(deployment["name"])) if tls else None,
    }
    keyed = _KEY in (deployment.get("secrets") or ())
    return request, read_key(os.path.join(secrets, _KEY), unit) if keyed else ""


def battery_of(battery, plan, unit) -> dict:
    """Return the battery; without tool calls where the replica has no parser of them."""
    argv = next(one["argv"] for one in plan["replicas"] if one["unit"] == unit)
    parser = any(word.startswith("--tool-call-parser") for word in argv)
    items = [item for item in battery["items"] if parser or item["group"] != "tools"]
    return {**battery, "items": items}


def compared(parameters, outcome, limits) -> list:
    """Return the findings about answers and time, compared with those before."""
    unit, before = parameters["unit"], parameters["before"] or {}
    findings = list(
        smoke.judge_speed(
            outcome["first_token_seconds"], before.get("first_token_seconds"), limits, unit
        )
    )
    compare, because = parameters["compare"], parameters["because"]
    if before.get("stable") is False and compare == "must":
        compare, because = "should", "but it did not repeat itself before the change, either"
    findings += smoke.judge_answers(
        before.get("answers") or {}, outcome["answers"], compare, because, unit
    )
    return findings


def answers(request, key, facts, baseline) -> dict:
    """Return the answers to the prompts, and whether and how soon they come; raises QualityError.

    Temperature 0 and the seed make an answer the model's most likely one.
    """
    client = Client(request["url"], key, request["authority"])
    seconds, greedy = float(facts["timeout_seconds"]), {"temperature": 0, "seed": 0}
    greedy["model"] = request["model"]
    bodies = {
        item["id"]: {**greedy, "prompt": item["text"], "max_tokens": item["max_tokens"]}
        for item in facts["prompts"]
    }

    def complete():
        return {name: smoke.complete(client, body, seconds) for name, body in bodies.items()}

    # The first answer of an engine may wait for kernels; the streamed one, which is timed, not.
    first = complete()
    stable = complete() == first if baseline else None
    late = smoke.stream(client, next(iter(bodies.values())), seconds)
    return {"answers": first, "stable": stable, "first_token_seconds": round(late, 3)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "unit": {"type": "str", "required": True},
            "smoke": {"type": "dict", "required": True},
            "directory": {"type": "path", "default": "/etc/apiary"},
            "before": {"type": "dict"},
            "compare": {"type": "str", "choices": ["must", "should", "no"], "default": "must"},
            "because": {"type": "str", "default": "the model and the engine are the same"},
            "baseline": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    facts = parameters["smoke"]
    unit, baseline, findings = parameters["unit"], parameters["baseline"], []
    outcome = {"answers": {}, "stable": None, "first_token_seconds": None, "quality": None}
    outcome["unit"], code = unit, "ROLLOUT-SMOKE-FAILED"
    try:
        request, key = request_of(parameters["plan"], unit, parameters["directory"])
        outcome.update(answers(request, key, facts, baseline))
        if facts.get("battery") and not baseline:
            code = "QUALITY-NOT-ASKED"
            battery = battery_of(facts["battery"], parameters["plan"], unit)
            measured = measure({**battery, **request}, key)
            # A link such as `current` leads to what the engine has loaded.
            path = os.path.realpath(parameters["plan"]["deployment"]["model"]["path"])
            outcome["quality"] = {**measured, "revision": revision_of(path)}
    except (ApiaryError, QualityError) as failure:
        outcome["answers"] = {}
        if isinstance(failure, QualityError):
            failure = error(code, unit, str(failure))
        findings = [
            Finding(each.code, each.subject, each.message, minor=baseline)
            for each in failure.findings
        ]
    else:
        if not baseline:
            findings = compared(parameters, outcome, facts["limits"])
    if not all(finding.is_minor for finding in findings):
        fail(module, *findings, **outcome)
    documents = [finding.facts() for finding in findings]
    module.exit_json(changed=False, findings=documents, **outcome)


if __name__ == "__main__":
    main()
