# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare Apiary's parameter counts with transformers' own models, and record those.

    run.py [--record]

Makes, once, an environment with the torch (CPU) and transformers that requirements/e2e.txt pins, in
.lab/meta; has inside.py count every model type that Apiary knows and every real config that is
there; and compares. With --record the counts and the configs they are of become
tests/golden/model-zoo.json, which the ordinary tests compare with. No GPU, no hub.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT / "tests")]

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (  # noqa: E402
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (  # noqa: E402
    architecture,
    known_names,
)

from support.model_zoo import GOLDEN, TOLERANCE, UNLIKE, real_configs  # noqa: E402

LAB = ROOT / ".lab/meta"
PINS = ROOT / "requirements/e2e.txt"
# Of the engine's pinned packages, those that building a model needs.
PACKAGES = {
    *("torch", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "setuptools"),
    *("sympy", "typing-extensions", "transformers", "numpy", "huggingface-hub", "packaging"),
    *("pyyaml", "regex", "safetensors", "tokenizers", "tqdm", "hf-xet", "typer", "click", "rich"),
    *("shellingham", "annotated-doc", "markdown-it-py", "mdurl", "pygments", "httpx2", "httpcore2"),
    *("anyio", "idna", "h11", "truststore", "pillow"),
}


def pins() -> str:
    """Return the pinned requirements of PACKAGES, with their hashes."""
    entries = re.findall(r"(?m)^[\w.-]+==.*(?:\n    --hash=.*)+", PINS.read_text("utf-8"))
    return "\n".join(entry for entry in entries if entry.partition("==")[0] in PACKAGES) + "\n"


def environment() -> Path:
    """Return the Python of the environment, made anew when the pins changed."""
    python, mark = LAB / "venv/bin/python", LAB / "stamp"
    wanted = pins()
    stamp = hashlib.sha256(wanted.encode()).hexdigest()
    if mark.is_file() and mark.read_text() == stamp:
        return python
    LAB.mkdir(parents=True, exist_ok=True)
    (LAB / "requirements.txt").write_text(wanted, encoding="utf-8")
    venv.create(LAB / "venv", clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "-qq", "--disable-pip-version-check", "install"]
    command += ["--no-deps", "--require-hashes", "-r", str(LAB / "requirements.txt")]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(
            "pip could not install torch's CPU build and transformers: put the pinned CPU wheel in"
            " a directory and name that in PIP_FIND_LINKS"
        )
    mark.write_text(stamp)
    return python


def counted() -> dict[str, dict]:
    """Return what inside.py answers for every type and every real config."""
    configs = {
        name: knowledge(f"models/{name.replace('/', '--')}.yml")["config"] for name in known_names()
    }
    request = {
        "types": sorted(knowledge("models/families.yml")["families"]),
        "configs": {**configs, **real_configs()},
    }
    done = subprocess.run(
        [environment(), Path(__file__).with_name("inside.py")],
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    answer: dict[str, dict] = json.loads(done.stdout)
    answer["documents"] = request["configs"]
    return answer


def record(document: dict) -> str:
    """Return the record as JSON with a line a model, so that a diff names the models."""
    parts = []
    for part, value in sorted(document.items()):
        text = json.dumps(value, sort_keys=True)
        if isinstance(value, dict):
            lines = (
                f"{json.dumps(name)}: {json.dumps(value[name], sort_keys=True)}"
                for name in sorted(value)
            )
            text = "{\n" + ",\n".join(lines) + "\n}"
        parts.append(f"{json.dumps(part)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    answer = counted()
    cases = {
        name: (entry["config"], entry["parameters"])
        for name, entry in answer["zoo"].items()
        if entry["parameters"] is not None
    }
    cases |= {
        name: (answer["documents"][name], count)
        for name, count in answer["real"].items()
        if isinstance(count, int)
    }
    failed = 0
    for name, (config, count) in sorted(cases.items()):
        ours = architecture(config, name).total_parameters
        off = None if ours is None else ours / count - 1
        fine = off is not None and abs(off) <= TOLERANCE
        if not fine and name not in UNLIKE:
            failed += 1
        if not fine:
            said = "unknown" if off is None else f"{off:+.3%}"
            print(
                f"{name}: transformers {count}, ours {ours} ({said}) {UNLIKE.get(name, 'FAILED')}"
            )
    for name, entry in answer["zoo"].items():
        if entry["parameters"] is None and "no model class" not in entry["problem"]:
            print(f"{name}: not built: {entry['problem']}")
    for name, problem in answer["real"].items():
        if not isinstance(problem, int):
            print(f"{name}: not built: {problem}")
    if arguments.record:
        zoo = {
            name: {"config": entry["config"], "parameters": entry["parameters"]}
            for name, entry in answer["zoo"].items()
            if entry["parameters"] is not None
        }
        real = {name: count for name, count in answer["real"].items() if isinstance(count, int)}
        document = {"transformers": answer["transformers"], "real": real, "zoo": zoo}
        GOLDEN.write_text(record(document), encoding="utf-8")
    elif GOLDEN.is_file():
        recorded = json.loads(GOLDEN.read_text("utf-8"))
        for name, entry in recorded["zoo"].items():
            if answer["zoo"].get(name, {}).get("parameters") != entry["parameters"]:
                failed += 1
                print(f"{name}: the record is stale; run tests/meta/run.py --record")
    real_count = sum(isinstance(count, int) for count in answer["real"].values())
    print(
        f"transformers {answer['transformers']}: {len(cases) - real_count} made and {real_count}"
        f" real configs, tolerance {TOLERANCE:.1%}"
    )
    print(f"{len(cases) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
