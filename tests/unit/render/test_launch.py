# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import errno
import http.server
import os
import socket
import subprocess
import threading

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host import launch

KFD = "sys/class/kfd/kfd/topology/nodes"
# HIP numbers by KFD node, rocm-smi by BDF: on real MI300X hosts the two differ.
GPUS = {
    "0000:05:00.0": (3, 128),
    "0000:26:00.0": (2, 129),
    "0000:46:00.0": (5, 130),
    "0000:65:00.0": (4, 131),
}


@pytest.fixture
def root(tmp_path):
    """A host with four GPUs."""
    cpu = tmp_path / KFD / "0"
    cpu.mkdir(parents=True)
    (cpu / "properties").write_text("simd_count 0\n")
    (tmp_path / "dev/dri").mkdir(parents=True)
    for bdf, (node, minor) in GPUS.items():
        directory = tmp_path / KFD / str(node)
        directory.mkdir()
        location = int(bdf[5:7], 16) << 8
        (directory / "properties").write_text(
            f"simd_count 1216\nlocation_id {location}\ndomain 0\ndrm_render_minor {minor}\n"
        )
        (tmp_path / f"dev/dri/renderD{minor}").write_text("")
    return tmp_path


@pytest.fixture
def deny(monkeypatch):
    """Refuse to open some render nodes, as a closed device policy does."""
    real = os.open

    def denying(*bdfs, code=errno.EPERM):
        minors = tuple(f"renderD{GPUS[bdf][1]}" for bdf in bdfs)

        def refuse(path, *arguments, **options):
            if str(path).endswith(minors):
                raise OSError(code, os.strerror(code))
            return real(path, *arguments, **options)

        monkeypatch.setattr(launch.os, "open", refuse)

    return denying


def test_ordinals_are_ranks_among_what_the_process_may_open(root, deny):
    deny("0000:05:00.0", "0000:26:00.0")
    assert launch.visible_devices(["0000:46:00.0", "0000:65:00.0"], str(root)) == [0, 1]


def test_gpus_are_found_by_bdf_whatever_their_node(root):
    assert launch.gpus_of_host(str(root))["0000:26:00.0"] == (2, "renderD129")


def test_a_device_without_a_driver_behind_it_is_still_permitted(root, deny):
    deny(*GPUS, code=errno.ENXIO)
    assert launch.visible_devices(list(GPUS), str(root)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("wanted", "denied", "code"),
    [
        (["0000:05:00.0", "0000:99:00.0"], [], "REPLICA-GPU-MISSING"),
        (["0000:05:00.0"], ["0000:05:00.0"], "REPLICA-GPU-DENIED"),
        (["0000:05:00.0"], ["0000:26:00.0"], "REPLICA-NOT-ISOLATED"),
    ],
)
def test_a_start_that_is_not_as_planned_is_refused(root, deny, wanted, denied, code):
    deny(*denied)
    with pytest.raises(launch.RefusalError) as caught:
        launch.visible_devices(wanted, str(root))
    assert caught.value.code == code


def test_partitions_of_one_gpu_have_keys_of_their_own(root):
    for partition, (node, minor) in enumerate([(8, 140), (9, 141)]):
        directory = root / KFD / str(node)
        directory.mkdir()
        (directory / "properties").write_text(
            f"simd_count 152\nlocation_id {0x85 << 8 | partition}\ndomain 0\n"
            f"drm_render_minor {minor}\n"
        )
    assert {"0000:85:00.0#0", "0000:85:00.0#1"} <= set(launch.gpus_of_host(str(root)))


def test_the_engine_sees_the_ordinals_and_no_other_selection(root, deny, monkeypatch):
    deny("0000:05:00.0", "0000:26:00.0")
    seen = {}
    monkeypatch.setattr(launch.os, "execve", lambda *call: seen.update(call=call))
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "4,5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    launch.run(["0000:46:00.0", "0000:65:00.0"], ["/opt/vllm/bin/vllm", "serve"], str(root))
    path, arguments, environment = seen["call"]
    assert (path, arguments) == ("/opt/vllm/bin/vllm", ["/opt/vllm/bin/vllm", "serve"])
    assert environment["HIP_VISIBLE_DEVICES"] == "0,1"
    assert not {"ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} & set(environment)


def test_a_refusal_is_one_error_and_exit_78(capsys):
    command = ["run", "--port", str(free_port()), "--gpu", "0000:ff:00.0", "--", "/bin/true"]
    assert launch.main(command) == launch.REFUSED
    err = capsys.readouterr().err
    assert err.startswith("error: REPLICA-GPU-MISSING: ")
    assert "remedy: " in err


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_port_that_somebody_serves_is_refused(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = ["run", "--port", str(port), "--gpu", "0000:ff:00.0", "--", "/bin/true"]
        assert launch.main(command) == launch.REFUSED
    assert capsys.readouterr().err.startswith("error: REPLICA-PORT-BUSY: ")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_a_free_port_is_fine(host):
    launch.check_port(host, free_port())


def test_waiting_ends_with_the_engine():
    """systemd waits for ExecStartPost even when the main process has long gone."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(launch.RefusalError) as caught:
        launch.wait("127.0.0.1", free_port(), 60, gone.pid)
    assert caught.value.code == "REPLICA-DIED"


class Health(http.server.BaseHTTPRequestHandler):
    """A replica that is loading for its first two answers."""

    answers = 0

    def do_GET(self):
        type(self).answers += 1
        self.send_response(200 if type(self).answers > 2 else 503)
        self.end_headers()

    def log_message(self, *_arguments):
        pass


def test_waiting_ends_when_the_replica_answers(monkeypatch):
    monkeypatch.setattr(launch, "POLL_SECONDS", 0.01)
    with http.server.HTTPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        launch.wait("127.0.0.1", server.server_port, 30)
        server.shutdown()
        thread.join()
    assert Health.answers == 3


def test_waiting_gives_up_with_the_last_answer(monkeypatch):
    monkeypatch.setattr(launch, "POLL_SECONDS", 0.01)
    with pytest.raises(launch.RefusalError, match="Connection refused") as caught:
        launch.wait("127.0.0.1", 9, 0.05)
    assert caught.value.code == "REPLICA-NOT-READY"
