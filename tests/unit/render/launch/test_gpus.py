# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import errno
import os

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host import gpus, supervise

from .conftest import GPUS, KFD


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

        monkeypatch.setattr(gpus.os, "open", refuse)

    return denying


def test_ordinals_follow_kfd_among_what_the_process_may_open(root, deny):
    deny("0000:05:00.0", "0000:26:00.0")
    wanted = ("0000:46:00.0", "0000:65:00.0")
    assert gpus.visible_devices(wanted, str(root)) == ["0000:65:00.0", "0000:46:00.0"]


def test_gpus_are_found_by_bdf_whatever_their_node(root):
    found = gpus.gpus_of_host(str(root))["0000:26:00.0"]
    assert (found.node, found.render, found.gpu_id, found.unique_id) == (2, "renderD129", 22, 2000)


def test_a_device_without_a_driver_behind_it_is_still_permitted(root, deny):
    deny(*GPUS, code=errno.ENXIO)
    assert len(gpus.visible_devices(tuple(GPUS), str(root))) == 4


def test_in_a_container_the_nodes_of_others_do_not_exist(root):
    (root / "dev/dri/renderD128").unlink()
    wanted = tuple(bdf for bdf in GPUS if bdf != "0000:05:00.0")
    assert set(gpus.visible_devices(wanted, str(root))) == set(wanted)


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
    with pytest.raises(ApiaryError) as caught:
        gpus.visible_devices(tuple(wanted), str(root))
    assert caught.value.findings[0].code == code


def test_a_wanted_node_that_udev_has_not_made_yet(root):
    (root / "dev/dri/renderD128").unlink()
    with pytest.raises(ApiaryError) as caught:
        gpus.visible_devices(tuple(GPUS), str(root))
    assert caught.value.findings[0].code == "REPLICA-NO-DEVICE"


def test_a_driver_that_is_not_loaded_yet_is_no_missing_gpu(root):
    (root / "sys/class/kfd/kfd").rename(root / "gone")
    with pytest.raises(ApiaryError) as caught:
        gpus.visible_devices(tuple(GPUS), str(root))
    assert caught.value.findings[0].code == "REPLICA-DRIVER"


def test_partitions_of_one_gpu_have_keys_of_their_own(root):
    for partition, (node, minor) in enumerate([(8, 140), (9, 141)]):
        directory = root / KFD / str(node)
        directory.mkdir()
        (directory / "properties").write_text(
            f"simd_count 152\nlocation_id {0x85 << 8 | partition}\ndomain 0\nunique_id 85\n"
            f"drm_render_minor {minor}\n"
        )
    assert {"0000:85:00.0#0", "0000:85:00.0#1"} <= set(gpus.gpus_of_host(str(root)))
    # What the device tells is of all partitions together.
    assert gpus.used_bytes("0000:85:00.0#1", str(root)) is None


def test_who_holds_memory_is_told_by_kfd(root):
    held = root / "sys/class/kfd/kfd/proc/4711"
    held.mkdir(parents=True)
    for name in ("vram_22", "vram_33", "sdma_22", "pasid"):
        (held / name).write_text("0\n")
    assert gpus.holders(str(root)) == {4711: {22, 33}}
    assert gpus.holders(str(root / "nowhere")) == {}


@pytest.mark.parametrize(
    ("runtime", "held", "fine"),
    [
        ("native", "vram_22", True),
        ("native", "vram_33", False),
        # Process numbers of a container are others than the kernel's.
        ("quadlet", "vram_33", True),
    ],
)
def test_what_the_engine_uses_is_asked_of_the_kernel(
    root, make_context, monkeypatch, runtime, held, fine
):
    directory = root / "sys/class/kfd/kfd/proc/4711"
    directory.mkdir(parents=True)
    (directory / held).write_text("1\n")
    monkeypatch.setattr(supervise, "descendants", lambda _pid: [4710, 4711])
    context = make_context(gpus=("0000:26:00.0",), runtime=runtime)
    supervisor = supervise.Supervisor(context, [])
    if fine:
        supervisor.check_use()
        return
    with pytest.raises(ApiaryError, match=r"uses GPUs of others: 0000:05:00\.0") as caught:
        supervisor.check_use()
    assert caught.value.findings[0].code == "REPLICA-NOT-ISOLATED"
