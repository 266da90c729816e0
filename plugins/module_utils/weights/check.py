# SPDX-License-Identifier: GPL-3.0-or-later

"""Say whether models on this host are what their manifests say.

Installed on hosts as /usr/libexec/apiary/weights-check: standard library, Python 3.9, beside
weights_manifest.py. Sizes are looked at in any case; the hashes of small files, code, settings and
templates at every start, which is cheap enough, and there code that was not published is refused;
all hashes on demand. Exit codes: 0 all right, 1 not, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import sys
import threading
import time
from dataclasses import asdict
from typing import Any, TextIO

from ..finding import ApiaryError, Finding, error
from . import manifest as weights_manifest

CONFIGURATION = "/etc/apiary/weights.json"
SCHEMA = "apiary.weights-check/v1"
TOLD_SECONDS = 10.0


class Progress:
    """Counts hashed bytes from several threads, and tells them now and then."""

    def __init__(self, total: int, stream: TextIO | None) -> None:
        self.total, self.stream = total, stream
        self.done = 0
        self.started = self.reported = time.monotonic()
        self.lock = threading.Lock()

    def __call__(self, count: int) -> None:
        with self.lock:
            self.done += count
            now = time.monotonic()
            if self.stream is None or now - self.reported < TOLD_SECONDS:
                return
            self.reported = now
            rate = self.done / (now - self.started)
            left = max(self.total - self.done, 0) / rate if rate else 0
            self.stream.write(
                f"{self.done / 2**30:.1f} of {self.total / 2**30:.1f} GiB, "
                f"{rate / 2**20:.0f} MiB/s, {left:.0f} s left\n"
            )
            self.stream.flush()


def configuration(path: str = CONFIGURATION) -> dict[str, Any]:
    """Return what the role wrote for this host; nothing where it has not been."""
    try:
        with open(path, encoding="utf-8") as stream:
            return dict(json.load(stream))
    except (OSError, ValueError, TypeError):
        return {}


def configured_models(settings: dict[str, Any]) -> list[str]:
    """Return the model directories of this host: those named, and those staged on its disk."""
    staged = [
        path
        for store in settings.get("stores", [])
        for path in sorted(glob.glob(os.path.join(glob.escape(store), "*", "*", "current")))
    ]
    return list(dict.fromkeys([*settings.get("models", []), *staged]))


def check(
    directory: str,
    level: str = "small",
    parallel: int = 4,
    required: bool = False,
    stream: TextIO | None = None,
) -> dict[str, Any]:
    """Return what is known of one model: manifest, deviations, and a finding or None.

    ``required`` refuses a directory that has no manifest; otherwise it is a warning.
    """
    report: dict[str, Any] = {
        "directory": directory,
        "repository": None,
        "revision": None,
        "files": 0,
        "total_bytes": 0,
        "level": level,
        "deviations": [],
        "finding": None,
    }
    try:
        if not os.listdir(directory):
            raise absent(directory, "is empty")
        manifest = weights_manifest.read(directory)
    except OSError as failure:
        return {
            **report,
            "finding": absent(directory, failure.strerror or str(failure)).findings[0],
        }
    except ApiaryError as failure:
        (finding,) = failure.findings
        if finding.code == "WEIGHTS-MANIFEST-MISSING" and not required:
            finding = Finding(finding.code, finding.subject, finding.message, minor=True)
        return {**report, "finding": finding}
    report.update(
        repository=manifest.repository,
        revision=manifest.revision,
        files=len(manifest.files),
        total_bytes=manifest.total_bytes,
    )
    progress = Progress(manifest.total_bytes, stream)
    found = weights_manifest.verify(directory, manifest, level, parallel, progress)
    if level != "sizes":
        found += weights_manifest.unlisted(directory, manifest)
    report["deviations"] = [
        {"path": one.path, "kind": one.kind, "found": one.found, "expected": one.expected}
        for one in found
    ]
    if found:
        report["finding"] = weights_manifest.damaged(directory, manifest, found).findings[0]
    return report


def absent(directory: str, problem: str) -> ApiaryError:
    """Return the refusal of a model that is not there: most often its mount is not."""
    return error(
        "WEIGHTS-ABSENT", directory, f"found nothing to serve from ({problem}), expected a model"
    )


def failed(report: dict[str, Any]) -> bool:
    """Say whether a model must not be served."""
    return report["finding"] is not None and not report["finding"].is_minor


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="weights-check", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("directories", nargs="*", help="default: the models of this host")
    parser.add_argument("--level", choices=weights_manifest.LEVELS, default="small")
    parser.add_argument("--parallel", type=int, default=4, help="files hashed at once")
    parser.add_argument(
        "--require-manifest", action="store_true", help="refuse a model that has none"
    )
    parser.add_argument("--json", action="store_true", help="print one document")
    arguments = parser.parse_args(argv)
    settings = configuration()
    required = arguments.require_manifest or bool(settings.get("manifest_required"))
    stream = None if arguments.json else sys.stderr
    reports = [
        check(directory, arguments.level, arguments.parallel, required, stream)
        for directory in arguments.directories or configured_models(settings)
    ]
    if arguments.json:
        json.dump({"schema": SCHEMA, "models": reports}, sys.stdout, sort_keys=True, default=asdict)
        sys.stdout.write("\n")
    else:
        for one in reports:
            sys.stderr.write(shown(one))
    return int(any(map(failed, reports)))


def shown(report: dict[str, Any]) -> str:
    """Return one model as a person reads it."""
    finding = report["finding"]
    if finding is None:
        size = f"{report['files']} files, {report['total_bytes'] / 2**30:.1f} GiB"
        level = report["level"].replace("small", "sizes and small files")
        return f"{report['directory']}: {level} of {size} as published\n"
    return f"{finding}\n"


if __name__ == "__main__":
    raise SystemExit(main())
