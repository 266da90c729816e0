# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The system calls of an engine in a container."""

import json
import re
import shutil
import subprocess

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import render_systemd

from support.host.containers import container_plan

PATH = "/usr/libexec/apiary/seccomp.json"
# NUMA policies, memory between ranks, and what hands GPU memory on.
NEEDED = {
    *("mbind", "set_mempolicy", "get_mempolicy", "move_pages", "migrate_pages"),
    *("set_mempolicy_home_node", "sched_setaffinity", "process_vm_readv", "process_vm_writev"),
    *("pidfd_open", "pidfd_getfd", "memfd_create", "sendmsg", "recvmsg", "ioctl", "mlock", "mmap"),
}
DENIED = {
    *("mount", "umount2", "pivot_root", "unshare", "setns", "clone3", "bpf", "ptrace", "reboot"),
    *("init_module", "finit_module", "kexec_load", "open_by_handle_at", "perf_event_open"),
    *(
        "io_uring_setup",
        "keyctl",
        "userfaultfd",
        "setuid",
        "chroot",
        "iopl",
        "swapon",
        "settimeofday",
    ),
}
# Of a native replica's calls a container lacks these, and has some more.
LESS = {
    *("clone3", "unshare", "setns", "userfaultfd", "name_to_handle_at", "vmsplice"),
    *("add_key", "keyctl", "request_key", "setfsgid", "setgid", "setregid", "setresgid"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
}
MORE = {
    *("chown", "fchown", "fchownat", "lchown", "pidfd_getfd", "cachestat", "map_shadow_stack"),
    *("futex_requeue", "futex_wait", "futex_wake", "mseal"),
}
# Of other architectures, and of 32 bits.
FOREIGN = re.compile(
    r".*(32|_time64|(stat|statfs|statat|gettime|settime|truncate|fcntl|sendfile|fadvise64_)64|_old)|"
    r"(arm|riscv)_.*|old.*|sig(action|nal|pending|procmask|return|suspend)|_llseek|_newselect|"
    r"cacheflush|mmap2|ipc|nice|readdir|recv|send|set_tls|socketcall|swapcontext|sync_file_range2|"
    r"ugetrlimit|waitpid|uretprobe"
)


def profile(runtime="docker"):
    (text,) = [one.content for one in render_systemd(container_plan(runtime)) if one.path == PATH]
    return json.loads(text)


def allowed():
    """Return the calls that are allowed, whatever their arguments."""
    rules = [rule for rule in profile()["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"]
    return {name for rule in rules for name in rule["names"]}


def test_an_engine_has_what_rocm_and_numa_need_and_no_way_out():
    document = profile()
    assert document["defaultAction"] == "SCMP_ACT_ERRNO"
    assert allowed() >= NEEDED
    assert allowed() & DENIED == set()
    assert profile("quadlet") == document


def test_no_call_that_makes_a_namespace_is_allowed():
    (clone,) = [rule for rule in profile()["syscalls"] if "clone" in rule["names"]]
    (mask,) = clone["args"]
    # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET of sched.h.
    flags = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
    assert (mask["value"], mask["valueTwo"], mask["op"]) == (flags, 0, "SCMP_CMP_MASKED_EQ")


@pytest.mark.parametrize("runtime", ["docker", "quadlet"])
def test_the_unit_names_the_profile_and_changes_with_it(runtime):
    unit = [one.content for one in render_systemd(container_plan(runtime)) if one.unit][-1]
    words = {"docker": f"--security-opt=seccomp={PATH}", "quadlet": f"SeccompProfile={PATH}"}
    assert words[runtime] in unit
    assert re.search(rf"# [0-9a-f]{{64}} {PATH}\n", unit)
    assert "unconfined" not in unit


def syscall_sets():
    """Return systemd's sets of calls, each with all that is in it."""
    listing = subprocess.run(
        ["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True
    ).stdout
    sets, name = {}, ""
    for line in listing.splitlines():
        if line.startswith("@"):
            name = line.strip()
            sets[name] = []
        elif name and line.strip() and not line.lstrip().startswith("#"):
            sets[name].append(line.strip())
    return sets


def calls(sets, name):
    parts = [calls(sets, each) if each.startswith("@") else {each} for each in sets[name]]
    return set().union(*parts)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd's own sets")
def test_a_container_may_call_what_a_native_replica_may():
    filters = knowledge("serving.yml")["sandbox"]["entries"]["SystemCallFilter"]["value"]
    assert filters == ["@system-service", "~@privileged"]
    sets = syscall_sets()
    native = calls(sets, "@system-service") - calls(sets, "@privileged")
    known = calls(sets, "@known")
    assert {name for name in native - allowed() - LESS if not FOREIGN.fullmatch(name)} == set()
    # Calls that this systemd does not know yet are newer ones.
    assert (allowed() & known) - native <= MORE
