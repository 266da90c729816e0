# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prometheus' own configuration and its files of targets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..documents import knowledge
from .labels import AMD, JOBS
from .promql import document
from .targets import alertmanagers
from .types import Target, TelemetrySettings

CONFIG = "prometheus.yml"
RULES = ("rules/recording.yml", "rules/slo.yml", "rules/alerts.yml")


def target_file(job: str) -> str:
    """Return the path of a job's targets below Prometheus' directory."""
    return f"targets/{job}.json"


def target_files(all_targets: Sequence[Target]) -> dict[str, str]:
    """Return the files of file-based discovery, one for each job, as JSON; a job may have none."""
    files = {}
    for job in JOBS:
        groups = [
            {"targets": [target.address], "labels": dict(sorted(target.labels.items()))}
            for target in all_targets
            if target.job == job
        ]
        files[target_file(job)] = json.dumps(groups, indent=2, sort_keys=True) + "\n"
    return files


def prometheus_config(settings: TelemetrySettings) -> str:
    """Return prometheus.yml; the paths in it are relative to its directory."""
    return document(
        {
            "global": {
                "scrape_interval": f"{settings.scrape_seconds}s",
                "scrape_timeout": f"{min(settings.scrape_seconds, 10)}s",
                "evaluation_interval": f"{settings.evaluation_seconds}s",
                "external_labels": {"cluster": settings.cluster},
            },
            "rule_files": list(RULES),
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": list(alertmanagers(settings))}]}]
            },
            "scrape_configs": [_job(job) for job in JOBS],
        }
    )


def _job(job: str) -> dict[str, Any]:
    config: dict[str, Any] = {"job_name": job, "file_sd_configs": [{"files": [target_file(job)]}]}
    if job == AMD:
        # A label that changes with every process would begin new series at each restart.
        dropped = "|".join(knowledge("telemetry/amd.yml")["labels"]["dropped"])
        config["metric_relabel_configs"] = [{"action": "labeldrop", "regex": dropped}]
    return config
