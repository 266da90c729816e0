# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import builtins
import dataclasses
import errno
import hashlib
import json
import os
import subprocess
import sys
import threading

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError
from ansible_collections.apiary.instinct.plugins.module_utils.weights import check, manifest, store
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host import preflight
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.context import (
    StoppedError,
)

from .conftest import GPUS, UNIT, alive

BDF = "0000:05:00.0"


def refusal(check, context):
    with pytest.raises(ApiaryError) as caught:
        check(context)
    return caught.value.findings[0]


def status(root, cpus="0-3", nodes="0-1"):
    (root / "proc/self/status").write_text(
        f"Name:\tpython\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{nodes}\n"
    )


def test_cpus_of_others_are_refused_and_missing_ones_told(root, make_context, capfd):
    status(root, cpus="0-3,8")
    preflight.check_binding(make_context(cpus="0-3,8"))
    found = refusal(preflight.check_binding, make_context(cpus="0-3"))
    assert (found.code, found.message) == (
        "REPLICA-BINDING",
        "planned CPUs 0-3, in effect 0-3,8",
    )
    context = make_context(cpus="0-15")
    preflight.check_binding(context)
    context.journal.close()
    assert (
        "warning: REPLICA-BINDING: apiary-demo-0.service: planned CPUs 0-15"
        in capfd.readouterr().err
    )


@pytest.mark.parametrize(
    ("policy", "nodes", "planned", "fine"),
    [
        ("bind:0", "0-1", (0,), True),
        ("bind:1", "0-1", (0,), False),
        ("default", "0-1", (0,), False),
        ("interleave:0-1", "0-1", (0, 1), True),
        ("default", "0-1", (0, 1), True),
        ("prefer=relative:1", "0-1", (1,), True),
        # One node: nothing to choose, and simulated hosts have no more.
        ("default", "0", (1,), True),
        # A container's control group.
        ("default", "1", (1,), True),
    ],
)
def test_memory_comes_from_the_planned_nodes(root, make_context, policy, nodes, planned, fine):
    status(root, nodes=nodes)
    (root / "proc/self/numa_maps").write_text(
        f"00400000 {policy} file=/usr/bin/python3 mapped=2\n7f0000 {policy} anon=1\n"
    )
    context = make_context(memory_nodes=planned)
    if fine:
        preflight.check_binding(context)
    else:
        assert refusal(preflight.check_binding, context).code == "REPLICA-BINDING"


def test_uncorrectable_errors_refuse_and_correctable_ones_do_not(root, make_context):
    context = make_context(gpus=tuple(GPUS))
    preflight.check_health(context)
    (root / "sys/bus/pci/devices" / BDF / "ras/umc_err_count").write_text("ue: 2\nce: 0\n")
    assert "0000:05:00.0 (2 in ras/umc_err_count)" in str(refusal(preflight.check_health, context))


def test_memory_in_use_is_waited_for(root, make_context, life):
    used = root / "sys/bus/pci/devices" / BDF / "mem_info_vram_used"
    used.write_text("9000000000\n")
    life["gpu"]["busy"]["poll_seconds"] = 0.01
    threading.Timer(0.1, used.write_text, ("1000\n",)).start()
    preflight.wait_memory(make_context(gpus=(BDF,)))


def test_memory_that_stays_in_use_names_its_holder(root, make_context, life):
    (root / "sys/bus/pci/devices" / BDF / "mem_info_vram_used").write_text("9000000000\n")
    (root / "sys/class/kfd/kfd/proc/4711").mkdir(parents=True)
    (root / "sys/class/kfd/kfd/proc/4711/vram_33").write_text("1\n")
    (root / "proc/4711").mkdir()
    (root / "proc/4711/comm").write_text("VLLM::Worker_TP\n")
    life["gpu"]["busy"]["wait_seconds"] = 0
    found = refusal(preflight.wait_memory, make_context(gpus=(BDF,)))
    assert found.code == "REPLICA-GPU-BUSY"
    assert "0000:05:00.0 (8.4 GiB) is in use by process 4711 (VLLM::Worker_TP)" in str(found)


@pytest.mark.parametrize(("words", "told"), [("--gpu-memory-utilization 0.99", 1), ("", 0)])
def test_a_share_above_what_is_free_is_reported(root, make_context, words, told):
    (root / "sys/bus/pci/devices" / BDF / "mem_info_vram_total").write_text(f"{10**10}\n")
    context, reported = make_context(gpus=(BDF,)), []
    context.report = lambda refusal: reported.extend(refusal.findings)
    preflight.check_share(context, ["vllm", "serve", "/m", *words.split()])
    preflight.check_share(context, ["vllm", "serve", "/m", "--gpu-memory-utilization=0.9"])
    assert [one.code for one in reported] == ["REPLICA-GPU-SHARE"] * told
    assert not told or "0.99 of each GPU's memory: 0000:05:00.0 (0.3 of 9.3" in reported[0].message


def test_a_wait_ends_with_the_order_to_stop(make_context):
    context = make_context()
    context.stopping = True
    with pytest.raises(StoppedError):
        context.pause(60)


def checker(tmp_path, life, script):
    program = tmp_path / "weights-check"
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    life["weights"]["check"] = str(program)


def finding(severity):
    found = {
        "code": "WEIGHTS-ABSENT",
        "severity": severity,
        "subject": "/srv/models/x",
        "message": "found nothing to serve from",
        "remedy": "see findmnt",
    }
    return f"print({json.dumps({'models': [{'finding': found}]})!r})"


def test_the_weights_check_speaks_for_itself(tmp_path, make_context, life):
    context = make_context(weights="/srv/models/x")
    checker(tmp_path, life, finding("error"))
    found = refusal(preflight.check_weights, context)
    assert found.code == "WEIGHTS-ABSENT"
    assert found.message == "/srv/models/x: found nothing to serve from"
    checker(tmp_path, life, finding("warning"))
    preflight.check_weights(context)
    checker(tmp_path, life, 'print(\'{"models": [{"finding": null}]}\')')
    preflight.check_weights(context)


def published(tmp_path):
    """A model of one file, with its manifest."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    one = manifest.ManifestFile("config.json", 2, hashlib.sha256(b"{}").hexdigest())
    whole = manifest.Manifest("a/b", "c" * 40, "2026-01-01T00:00:00Z", (one,))
    store.write_manifest(str(directory), whole)
    return directory


def answers(tmp_path, life, directory, level="sizes"):
    """Have weights-check print what this process finds."""
    report = check.check(str(directory), level)
    text = json.dumps({"models": [report]}, default=dataclasses.asdict)
    checker(tmp_path, life, f"print({text!r})")
    return report


@pytest.mark.parametrize("problem", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT])
@pytest.mark.parametrize("name", ["config.json", manifest.NAME])
def test_what_a_file_system_does_not_tell_now_is_tried_again(
    tmp_path, make_context, life, monkeypatch, problem, name
):
    directory = published(tmp_path)

    def failing(function):
        def call(path, *arguments, **options):
            if str(path) == str(directory / name):
                raise OSError(problem, os.strerror(problem), str(path))
            return function(path, *arguments, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", failing(os.stat))
        patch.setattr(builtins, "open", failing(builtins.open))
        answers(tmp_path, life, directory)
    context = make_context(weights=str(directory))
    found = refusal(preflight.check_weights, context)
    assert os.strerror(problem) in found.message
    assert life["refusals"]["entries"][found.code]["kind"] == "transient"
    assert preflight.passing_refusal(context).findings[0].code == found.code


def test_a_file_that_is_missing_may_come_and_another_size_stays(tmp_path, make_context, life):
    directory = published(tmp_path)
    context = make_context(weights=str(directory))
    answers(tmp_path, life, directory)
    preflight.check_weights(context)
    assert preflight.passing_refusal(context) is None
    (directory / "config.json").rename(directory / "gone")
    answers(tmp_path, life, directory)
    assert refusal(preflight.check_weights, context).code == "REPLICA-WEIGHTS"
    (directory / "config.json").write_text("{ }")
    answers(tmp_path, life, directory)
    found = refusal(preflight.check_weights, context)
    assert life["refusals"]["entries"][found.code]["kind"] == "permanent"
    # Of what stays nobody waits for the end.
    assert preflight.passing_refusal(context) is None


def test_another_hash_stays(tmp_path, make_context, life):
    directory = published(tmp_path)
    (directory / "config.json").write_text("[]")
    answers(tmp_path, life, directory, "hashes")
    found = refusal(preflight.check_weights, make_context(weights=str(directory)))
    assert life["refusals"]["entries"][found.code]["kind"] == "permanent"


@pytest.mark.parametrize("script", ["raise SystemExit('broken')", "print('{}')"])
def test_a_weights_check_that_fails_refuses(tmp_path, make_context, life, script):
    checker(tmp_path, life, script)
    assert refusal(preflight.check_weights, make_context()).code == "REPLICA-WEIGHTS"


def test_a_file_server_that_does_not_answer_refuses(tmp_path, make_context, life):
    checker(tmp_path, life, "import time; time.sleep(600)")
    life["weights"]["limit_seconds"] = 0.2
    found = refusal(preflight.check_weights, make_context())
    assert "could not be read within 0.2 s" in str(found)


def test_without_a_weights_check_the_directory_is_looked_at(tmp_path, make_context, life):
    life["weights"]["check"] = "/nonexistent"
    context = make_context(weights=str(tmp_path))
    assert refusal(preflight.check_weights, context).code == "REPLICA-WEIGHTS"
    (tmp_path / "config.json").write_text("{}")
    reported = []
    context.report = lambda refusal: reported.extend(refusal.findings)
    preflight.check_weights(context)
    assert [(one.code, one.is_minor) for one in reported] == [("REPLICA-WEIGHTS", True)]


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (f"0::/apiary.slice/{UNIT}", f"sys/fs/cgroup/apiary.slice/{UNIT}"),
        (f"1:name=systemd:/apiary.slice/{UNIT}", f"sys/fs/cgroup/systemd/apiary.slice/{UNIT}"),
    ],
)
def test_processes_of_an_earlier_run_are_ended(root, make_context, line, place):
    (root / "proc/self/cgroup").write_text(f"9:cpu:/\n{line}\n")
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    listed = root / place / "cgroup.procs"
    listed.parent.mkdir(parents=True)
    listed.write_text(f"{os.getpid()}\n{left.pid}\n")

    def buried():
        left.wait()
        listed.write_text(f"{os.getpid()}\n")

    waiting = threading.Thread(target=buried)
    waiting.start()
    preflight.end_processes(make_context())
    waiting.join()
    assert not alive(left.pid)


@pytest.mark.parametrize("path", ["/", "/user.slice/session-3.scope", "/apiary-other-0.service"])
def test_nobody_else_is_ended(root, make_context, path):
    """By hand it runs in the session of whoever called it."""
    (root / "proc/self/cgroup").write_text(f"0::{path}\n")
    listed = root / "sys/fs/cgroup" / path.lstrip("/") / "cgroup.procs"
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text("1\n")
    assert preflight.own_group(make_context()) is None


def test_a_process_that_cannot_be_ended_refuses(root, make_context, life):
    life["leftovers"]["limit_seconds"] = 0
    (root / "proc/self/cgroup").write_text(f"0::/{UNIT}\n")
    listed = root / "sys/fs/cgroup" / UNIT / "cgroup.procs"
    listed.parent.mkdir(parents=True)
    # Beyond what a kernel numbers: nobody's.
    listed.write_text("99999999\n")
    assert refusal(preflight.end_processes, make_context()).code == "REPLICA-LEFTOVER"


def test_locks_below_the_own_caches_go_and_nothing_else(tmp_path, make_context):
    cache, other = tmp_path / "cache/apiary-demo-0", tmp_path / "cache/apiary-demo-1"
    files = {
        "home/.aiter/jit/build/lock_module_rmsnorm": "",
        "torch_extensions/x/lock": "",
        "home/.aiter/jit/module_gemm_blockscale.so": "",
        "home/.aiter/jit/lock_with_content": "somebody's",
        "home/.aiter/jit/lock_module_moe": "4711\ngpu-001\n",
        "home/.aiter/configs/tuned_fmoe.csv.lock": "",
        "huggingface/.locks/x.lock": "",
    }
    for top in (cache, other):
        for name, text in files.items():
            path = top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (cache / "lock_link").symlink_to(other / "torch_extensions/x/lock")
    context = make_context({"CACHE_DIRECTORY": f"{cache}:{cache / 'home'}"})
    removed = preflight.remove_locks(context)
    assert {os.path.relpath(path, cache) for path in removed} == {
        "home/.aiter/jit/build/lock_module_rmsnorm",
        "home/.aiter/jit/lock_module_moe",
        "home/.aiter/configs/tuned_fmoe.csv.lock",
        "torch_extensions/x/lock",
    }
    assert all((other / name).exists() for name in files)


def test_without_caches_of_the_unit_nothing_is_removed(tmp_path, make_context):
    assert preflight.remove_locks(make_context({"HOME": str(tmp_path)})) == []
