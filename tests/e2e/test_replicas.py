# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the site playbook left behind, asked of the host itself."""

import json
import urllib.request

import pytest

from support.waiting import await_true

# What of a unit would start, watch or bind the engine instead of a probe in the same sandbox.
NOT_OF_A_PROBE = (
    *("Type=", "NotifyAccess=", "ExecStart=", "Restart", "WatchdogSec=", "Timeout", "PartOf="),
    *("Wants=", "After=", "RuntimeDirectory", "WantedBy=", "SuccessExitStatus="),
)
PROBE = "apiary-probe"


@pytest.fixture
def in_sandbox(host, upload):
    """Run a Python program as a replica's unit would run it; returns what it prints, as JSON."""

    def run(replica, program):
        unit = host.file(f"/etc/systemd/system/{replica['unit']}").content_string
        lines = [line for line in unit.splitlines() if not line.startswith(NOT_OF_A_PROBE)]
        here = lines.index("[Service]") + 1
        lines[here:here] = [
            *("Type=oneshot", f"ExecStart=/usr/bin/python3 -B /usr/local/lib/{PROBE}.py"),
            f"StandardOutput=truncate:/run/{PROBE}.out",
        ]
        upload(f"/usr/local/lib/{PROBE}.py", program)
        upload(f"/run/systemd/system/{PROBE}.service", "\n".join(lines) + "\n")
        started = host.run(f"systemctl daemon-reload && systemctl start {PROBE}")
        assert started.rc == 0, host.check_output(f"journalctl -n 20 -u {PROBE}")
        return json.loads(host.file(f"/run/{PROBE}.out").content_string)

    yield run
    host.run(
        f"rm -f /usr/local/lib/{PROBE}.py /run/{PROBE}.out /run/systemd/system/{PROBE}.service"
    )
    host.run("systemctl daemon-reload")


OPENS = """
import errno, json, os, sys
found = {{}}
for path in {paths!r}:
    try:
        os.close(os.open(path, os.O_RDWR))
        found[path] = "opened"
    except OSError as failure:
        found[path] = errno.errorcode[failure.errno]
print(json.dumps(found))
"""
TRIES = """
import ctypes, json, mmap, os, socket
from multiprocessing import shared_memory

libc = ctypes.CDLL(None, use_errno=True)

def attempt(function):
    try:
        return function() or "works"
    except OSError as failure:
        return failure.strerror

def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def share():
    memory = shared_memory.SharedMemory(create=True, size=4096)
    memory.buf[0] = 1
    memory.close()
    memory.unlink()

word = ctypes.create_string_buffer(8)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
here = Vector(ctypes.addressof(word), 8)
print(json.dumps({
    "write to /etc": attempt(lambda: open("/etc/apiary/x", "w")),
    "write to /usr": attempt(lambda: open("/usr/x", "w")),
    "list /home": attempt(lambda: os.listdir("/home") and None),
    "see others": attempt(lambda: os.stat("/proc/1") and None),
    "become root": attempt(lambda: os.setuid(0)),
    "a user namespace": attempt(lambda: call(272, 0x10000000)),
    "a packet socket": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW) and None),
    "trace": attempt(lambda: call(101, 0, 0, 0, 0)),
    "mount": attempt(lambda: call(165, b"none", b"/mnt", b"tmpfs", 0, None)),
    "settle in /dev/shm": os.listdir("/dev/shm") or attempt(share),
    "code made at run time": attempt(lambda: mmap.mmap(-1, 4096, prot=7) and None),
    "a netlink socket": attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) and None),
    "an abstract Unix socket": attempt(lambda: socket.socket(socket.AF_UNIX).bind("\\0x")),
    "a memory policy": attempt(lambda: call(238, 0, None, 0)),
    "memory of another rank": attempt(
        lambda: call(310, os.getpid(), ctypes.byref(here), ctypes.c_ulong(1),
                     ctypes.byref(here), ctypes.c_ulong(1), ctypes.c_ulong(0))),
    "memory by descriptor": attempt(lambda: os.close(os.memfd_create("x"))),
    "its own cache": attempt(lambda: open(os.environ["HOME"] + "/probe", "w") and None),
    "CPUs": sorted(os.sched_getaffinity(0)),
    "user": os.getuid() != 0,
}))
"""


def show(host, unit, *properties):
    """Some properties of a unit, as systemd tells them."""
    out = host.check_output(f"systemctl show --property={','.join(properties)} {unit}")
    return dict(line.split("=", 1) for line in out.splitlines())


def render_node(host, bdf):
    return host.check_output(f"readlink -f /dev/dri/by-path/pci-{bdf}-render")


def ask(variables, replica, path, body=None):
    """A replica's answer over its published port."""
    port = variables["lab_ports"][str(replica["port"])]
    data = json.dumps(body).encode() if body else None
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        return response.read().decode()


@pytest.mark.double
def test_each_socket_has_its_replicas(plan):
    nodes = [replica["memory_nodes"] for replica in plan["replicas"]]
    assert nodes == sorted(nodes)
    assert {tuple(one) for one in nodes} == {(0,), (1,)}


def test_replicas_share_no_gpu(plan):
    gpus = [gpu for replica in plan["replicas"] for gpu in replica["gpus"]]
    wanted = plan["deployment"]["layout"]
    assert len(plan["replicas"]) == wanted["replicas"]
    assert len(gpus) == len(set(gpus)) == wanted["replicas"] * wanted["tensor_parallel_size"]


def test_units_serve_and_come_back_at_boot(host, plan):
    for unit in [replica["unit"] for replica in plan["replicas"]] + [plan["target"]]:
        service = host.service(unit)
        assert service.is_running
        assert service.is_enabled


def test_cpus_are_the_planned_ones_and_in_effect(host, plan):
    for replica in plan["replicas"]:
        found = show(host, replica["unit"], "CPUAffinity", "MainPID")
        assert found["CPUAffinity"] == replica["cpus"]
        status = host.file(f"/proc/{found['MainPID']}/status").content_string
        allowed = next(
            line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list")
        )
        assert allowed == replica["cpus"]


def processes(host, unit):
    """The ids of all processes of a unit: supervisor, server, engine core, workers."""
    group = show(host, unit, "ControlGroup")["ControlGroup"]
    # In a container systemd names groups from its own root, which lies deeper in the tree.
    found = host.check_output(f"cat $(find /sys/fs/cgroup -path '*{group}/cgroup.procs' | head -1)")
    return found.split()


def test_every_process_of_a_replica_has_its_cpus(host, plan):
    for replica in plan["replicas"]:
        ids = processes(host, replica["unit"])
        assert len(ids) >= 3
        for one in ids:
            status = host.file(f"/proc/{one}/status").content_string.splitlines()
            told = dict(line.split(":\t", 1) for line in status if ":\t" in line)
            assert told["Cpus_allowed_list"] == replica["cpus"]
            assert (told["CapBnd"], told["NoNewPrivs"], told["Seccomp"]) == ("0" * 16, "1", "2")


def test_memory_lies_on_the_planned_nodes(host, plan):
    """/proc tells the policy that holds, whatever the unit says."""
    if len(host.check_output("ls -d /sys/devices/system/node/node[0-9]* | wc -l")) and (
        "bind:" not in host.run("numactl --membind=0 cat /proc/self/numa_maps").stdout
    ):
        pytest.skip("the kernel below has one memory node, and lets policies pass without effect")
    for replica in plan["replicas"]:
        nodes = ",".join(map(str, replica["memory_nodes"]))
        for one in processes(host, replica["unit"]):
            policies = {
                line.split()[1]
                for line in host.file(f"/proc/{one}/numa_maps").content_string.splitlines()
            }
            assert f"bind:{nodes}" in policies


def test_memory_is_bound_to_the_planned_node(host, plan):
    for replica in plan["replicas"]:
        found = show(host, replica["unit"], "NUMAPolicy", "NUMAMask")
        nodes = ",".join(map(str, replica["memory_nodes"]))
        assert found == {"NUMAPolicy": "bind", "NUMAMask": nodes}


def test_devices_are_the_planned_ones_only(host, plan):
    for replica in plan["replicas"]:
        found = show(host, replica["unit"], "DevicePolicy", "DeviceAllow")
        assert found["DevicePolicy"] == "closed"
        # systemctl prints one DeviceAllow= line a device and show() keeps the last.
        lines = host.check_output(f"systemctl show --property=DeviceAllow {replica['unit']}")
        allowed = {line.split("=", 1)[1].split()[0] for line in lines.splitlines()}
        wanted = {f"/dev/dri/by-path/pci-{bdf}-render" for bdf in replica["gpus"]}
        assert allowed == {"/dev/kfd", *wanted}


def test_a_replica_opens_its_own_gpus_and_no_others(host, plan, in_sandbox):
    nodes = {bdf: render_node(host, bdf) for replica in plan["replicas"] for bdf in replica["gpus"]}
    for replica in plan["replicas"]:
        paths = ["/dev/kfd", "/dev/mem", "/dev/fuse", *nodes.values()]
        found = in_sandbox(replica, OPENS.format(paths=paths))
        for bdf, path in nodes.items():
            # Without a driver behind it an open that is allowed ends with another error.
            assert (found[path] == "EPERM") == (bdf not in replica["gpus"]), (bdf, found)
        assert found["/dev/kfd"] != "EPERM"
        assert found["/dev/mem"] in ("EPERM", "EACCES", "ENOENT")
        assert found["/dev/fuse"] in ("EPERM", "EACCES", "ENOENT")


def test_the_sandbox_holds_and_leaves_what_an_engine_needs(plan, in_sandbox):
    found = in_sandbox(plan["replicas"][0], TRIES)
    cpus = found.pop("CPUs")
    low, _dash, high = plan["replicas"][0]["cpus"].split(",")[0].partition("-")
    assert set(range(int(low), int(high or low) + 1)) <= set(cpus)
    assert found == {
        "write to /etc": "Read-only file system",
        "write to /usr": "Read-only file system",
        "list /home": "Permission denied",
        "see others": "No such file or directory",
        "become root": "Operation not permitted",
        "a user namespace": "Operation not permitted",
        "a packet socket": "Address family not supported by protocol",
        "trace": "Operation not permitted",
        "mount": "Operation not permitted",
        "settle in /dev/shm": "works",
        "code made at run time": "works",
        "a netlink socket": "works",
        "an abstract Unix socket": "works",
        "a memory policy": "works",
        "memory of another rank": "works",
        "memory by descriptor": "works",
        "its own cache": "works",
        "user": True,
    }


def refused(host, plan, upload, **other):
    """How a start ends whose document is the first replica's but for some fields."""
    document = host.file(f"/etc/apiary/{plan['deployment']['name']}/replica-0.json").content_string
    spec = {**json.loads(document), "cpus": None, "memory_nodes": [], **other}
    upload("/run/apiary-refused.json", json.dumps(spec))
    return host.run(
        "systemd-run --wait --pipe --quiet -p CacheDirectory=apiary-refused "
        "/usr/libexec/apiary/launch run --spec /run/apiary-refused.json -- /bin/true"
    )


def test_a_start_without_isolation_is_refused(host, plan, upload):
    started = refused(host, plan, upload)
    assert started.rc == 78
    assert "REPLICA-NOT-ISOLATED" in started.stderr


def test_a_file_of_one_replica_restarts_it_alone(host, plan, serve):
    """Drift of an environment file: the role mends it, and only its replica starts anew."""
    first, second, *_others = plan["replicas"]
    path = f"/etc/apiary/{plan['deployment']['name']}/replica-1.env"
    serve()
    before = {one["unit"]: show(host, one["unit"], "InvocationID") for one in plan["replicas"]}
    host.check_output(f"echo NCCL_DEBUG=TRACE >> {path}")
    serve()
    assert "NCCL_DEBUG=TRACE" not in host.file(path).content_string
    after = {one["unit"]: show(host, one["unit"], "InvocationID") for one in plan["replicas"]}
    assert {unit for unit in before if before[unit] != after[unit]} == {second["unit"]}
    assert " changed=0 " in serve().stdout
    assert after[first["unit"]] == show(host, first["unit"], "InvocationID")


def test_the_environment_of_the_engine_is_the_planned_one(host, plan):
    for replica in plan["replicas"]:
        for one in processes(host, replica["unit"])[1:]:
            words = host.file(f"/proc/{one}/environ").content_string.split("\0")
            found = dict(word.split("=", 1) for word in words if "=" in word)
            # The title that vLLM gives to a process overwrites the start of what is read here.
            renamed = host.file(f"/proc/{one}/comm").content_string.startswith("VLLM::")
            # The engine itself may change what it hands to its children, and adds to it.
            planned = replica["env"].items()
            left = {name for name, _ in planned if name in found or not renamed}
            differ = {name for name, value in planned if name in left and found.get(name) != value}
            assert differ == set()


def test_the_engine_runs_as_its_own_user(host, plan, account):
    for replica in plan["replicas"]:
        pid = show(host, replica["unit"], "MainPID")["MainPID"]
        assert host.check_output(f"stat -c %U /proc/{pid}") == account


def test_units_are_sound(host, plan):
    names = [*(replica["unit"] for replica in plan["replicas"]), plan["target"], "apiary.slice"]
    units = " ".join(f"/etc/systemd/system/{name}" for name in names)
    verified = host.run(f"systemd-analyze verify {units}")
    # Only our own units count; a minimal host has complaints about others.
    assert "apiary" not in verified.stderr
    assert verified.rc == 0


def test_units_are_exposed_as_little_as_serving_allows(host, plan):
    for replica in plan["replicas"]:
        judged = host.run(f"systemd-analyze security --threshold=30 {replica['unit']}")
        assert judged.rc == 0, judged.stdout.splitlines()[-1]


def test_serving_is_accounted_as_one(host, plan):
    for replica in plan["replicas"]:
        assert show(host, replica["unit"], "Slice") == {"Slice": "apiary.slice"}
    found = show(host, "apiary.slice", "MemoryAccounting", "CPUAccounting", "TasksAccounting")
    assert set(found.values()) == {"yes"}


def test_each_replica_answers_a_chat(variables, plan):
    for replica in plan["replicas"]:
        answer = json.loads(
            ask(
                variables,
                replica,
                "/v1/chat/completions",
                {
                    "model": plan["deployment"]["model"]["name"],
                    "messages": [{"role": "user", "content": "Hello"}],
                    "max_tokens": 16,
                },
            )
        )
        assert answer["object"] == "chat.completion"
        assert answer["choices"][0]["message"]["role"] == "assistant"
        assert answer["usage"]["completion_tokens"] > 0


@pytest.mark.double
def test_each_replica_answers_from_its_own_gpus(variables, plan):
    for replica in plan["replicas"]:
        body = {
            "model": plan["deployment"]["model"]["name"],
            "messages": [{"role": "user", "content": "Which GPUs?"}],
        }
        answer = ask(variables, replica, "/v1/chat/completions", body)
        for other in plan["replicas"]:
            for bdf in other["gpus"]:
                assert (bdf in answer) == (other is replica)


def test_answers_can_be_streamed(variables, plan):
    body = {
        "model": plan["deployment"]["model"]["name"],
        "prompt": "Hello",
        "max_tokens": 4,
        "stream": True,
    }
    lines = ask(variables, plan["replicas"][0], "/v1/completions", body).strip().splitlines()
    assert lines[0].startswith("data: {")
    assert lines[-1] == "data: [DONE]"


def test_metrics_count_the_requests(variables, plan):
    for replica in plan["replicas"]:
        text = ask(variables, replica, "/metrics")
        counted = [
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith("vllm:request_success_total")
        ]
        assert sum(counted) > 0


@pytest.mark.double
def test_a_replica_whose_engine_dies_comes_back(host, variables, plan):
    """vLLM exits 0 when its engine core dies, so on-failure would leave the replica down."""
    replica = plan["replicas"][1]
    before = show(host, replica["unit"], "MainPID", "NRestarts")
    host.check_output(f"pkill -KILL -P {before['MainPID']}")

    def back():
        now = show(host, replica["unit"], "MainPID", "NRestarts", "ActiveState")
        restarted = int(now["NRestarts"]) == int(before["NRestarts"]) + 1
        return restarted and now["ActiveState"] == "active"

    await_true(back, 60)
    assert ask(variables, replica, "/health") == ""
