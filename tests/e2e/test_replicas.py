# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the site playbook left behind, asked of the host itself."""

import json
import time
import urllib.request

import pytest


def show(host, unit, *properties):
    """Some properties of a unit, as systemd tells them."""
    out = host.check_output(f"systemctl show --property={','.join(properties)} {unit}")
    return dict(line.split("=", 1) for line in out.splitlines())


def render_node(host, bdf):
    return host.check_output(f"readlink -f /dev/dri/by-path/pci-{bdf}-render")


def await_true(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        time.sleep(0.2)


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


def test_a_replica_may_not_open_the_gpus_of_the_other(host, plan):
    first, second, *_others = plan["replicas"]
    own, other = (render_node(host, replica["gpus"][0]) for replica in (first, second))
    policy = "-p DevicePolicy=closed -p 'DeviceAllow=/dev/kfd rw' " + " ".join(
        f"-p 'DeviceAllow=/dev/dri/by-path/pci-{bdf}-render rw'" for bdf in first["gpus"]
    )
    probe = "import os,sys; os.open(sys.argv[1], os.O_RDWR)"

    def opened(path):
        return host.run(
            f"systemd-run --wait --pipe --quiet {policy} python3 -c '{probe}' {path}"
        ).stderr

    assert "Operation not permitted" in opened(other)
    assert "Operation not permitted" not in opened(own)


def test_a_start_without_isolation_is_refused(host, plan):
    gpus = " ".join(f"--gpu {bdf}" for bdf in plan["replicas"][0]["gpus"])
    started = host.run(
        "systemd-run --wait --pipe --quiet /usr/libexec/apiary/launch run --port 9 "
        f"{gpus} -- /bin/true"
    )
    assert started.rc == 78
    assert "REPLICA-NOT-ISOLATED" in started.stderr


def test_a_start_on_the_port_of_another_is_refused(host, plan):
    replica = plan["replicas"][0]
    gpus = " ".join(f"--gpu {bdf}" for bdf in replica["gpus"])
    started = host.run(
        "systemd-run --wait --pipe --quiet /usr/libexec/apiary/launch run "
        f"--host 0.0.0.0 --port {replica['port']} {gpus} -- /bin/true"
    )
    assert started.rc == 78
    assert "REPLICA-PORT-BUSY" in started.stderr


def test_a_start_ends_with_its_engine(host):
    """systemd would wait for ExecStartPost until the start timeout, an hour by default."""
    started = host.run(
        "timeout 30 systemd-run --unit=short-lived --collect -p Type=exec "
        "-p 'ExecStartPost=/usr/libexec/apiary/launch wait --port 9' /bin/sleep 1"
    )
    assert started.rc not in (0, 124)
    assert "REPLICA-DIED" in host.check_output("journalctl --unit=short-lived --output=cat")


def test_the_engine_runs_as_its_own_user(host, plan):
    for replica in plan["replicas"]:
        pid = show(host, replica["unit"], "MainPID")["MainPID"]
        assert host.check_output(f"stat -c %U /proc/{pid}") == plan["deployment"]["user"]


def test_units_are_sound(host, plan):
    units = " ".join(f"/etc/systemd/system/{replica['unit']}" for replica in plan["replicas"])
    verified = host.run(f"systemd-analyze verify {units} /etc/systemd/system/{plan['target']}")
    # Only our own units count; a minimal host has complaints about others.
    assert "apiary-" not in verified.stderr
    assert verified.rc == 0


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
