#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""See that a replica really answers, and as it did before."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.finding import ApiaryError, Finding, error, fail
from ..module_utils.quality import QualityError, measure
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


def endpoint_of(plan, unit, directory, timeout) -> smoke.Endpoint:
    """Return where a replica of a plan answers, and with which key."""
    deployment = plan["deployment"]
    address = deployment["listen_address"]
    secrets = os.path.join(directory, deployment["name"], "credentials")
    return smoke.Endpoint(
        unit,
        # A wildcard address listens on loopback too.
        "127.0.0.1" if address in _EVERYWHERE else address,
        next(item["port"] for item in plan["replicas"] if item["unit"] == unit),
        deployment["model"]["name"],
        read_key(os.path.join(secrets, _KEY), unit)
        if _KEY in (deployment.get("secrets") or ())
        else None,
        float(timeout),
        os.path.join(secrets, certificate(deployment["name"])) if deployment.get("tls") else None,
    )


def compared(parameters, outcome, limits) -> list:
    """Return what the answers and the time say, against those before."""
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


def asked(endpoint, battery) -> dict:
    """Return the replica's answers to a battery; QUALITY-NOT-ASKED where it gives none at all."""
    scheme = "https" if endpoint.authority else "http"
    address = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    own = {
        "url": f"{scheme}://{address}:{endpoint.port}",
        "model": endpoint.model,
        "authority": endpoint.authority,
    }
    try:
        return measure({**battery, **own}, endpoint.key or "")
    except QualityError as failure:
        raise error("QUALITY-NOT-ASKED", endpoint.unit, str(failure)) from None


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
    prompts = [smoke.Prompt(**item) for item in facts["prompts"]]
    outcome = {"answers": {}, "stable": None, "first_token_seconds": None, "quality": None}
    outcome["unit"] = parameters["unit"]
    findings = []
    try:
        endpoint = endpoint_of(
            parameters["plan"],
            parameters["unit"],
            parameters["directory"],
            facts["timeout_seconds"],
        )
        # The first answer of an engine may wait for kernels; the streamed one, which is timed, not.
        outcome["answers"] = {item.id: smoke.complete(endpoint, item) for item in prompts}
        if parameters["baseline"]:
            again = {item.id: smoke.complete(endpoint, item) for item in prompts}
            outcome["stable"] = again == outcome["answers"]
        streamed = smoke.stream(endpoint, prompts[0])
        outcome["first_token_seconds"] = round(streamed.first_token_seconds, 3)
        if facts.get("battery") and not parameters["baseline"]:
            outcome["quality"] = asked(endpoint, facts["battery"])
    except ApiaryError as failure:
        outcome["answers"] = {}
        findings = [
            Finding(each.code, each.subject, each.message, minor=parameters["baseline"])
            for each in failure.findings
        ]
    else:
        if not parameters["baseline"]:
            findings = compared(parameters, outcome, facts["limits"])
    if not all(finding.is_minor for finding in findings):
        fail(module, *findings, **outcome)
    documents = [finding.facts() for finding in findings]
    module.exit_json(changed=False, findings=documents, **outcome)


if __name__ == "__main__":
    main()
