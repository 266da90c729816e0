# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The programs that run on hosts: verification at start, warm-up, readahead."""

import json
import os
import subprocess
import sys

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.weights import check as weights_check
from ansible_collections.apiary.instinct.plugins.module_utils.weights import (
    manifest as weights_manifest,
)
from ansible_collections.apiary.instinct.plugins.module_utils.weights import readahead, store
from ansible_collections.apiary.instinct.plugins.modules import converge
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.program import findings
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache import files

from support.modules import run_module

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def model(tmp_path):
    """A published model of three files."""
    directory = tmp_path / "org/name" / COMMIT
    (directory / "sub").mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "sub/model.safetensors").write_bytes(b"weights" * 2**18)
    (directory / "modeling.py").write_text("print('as published')")
    manifest = weights_manifest.Manifest(
        "org/name",
        COMMIT,
        "2026-11-21T00:00:00Z",
        tuple(
            weights_manifest.ManifestFile(
                path,
                (directory / path).stat().st_size,
                weights_manifest.hash_file(str(directory / path)),
            )
            for path in ("config.json", "modeling.py", "sub/model.safetensors")
        ),
    )
    store.write_manifest(str(directory), manifest)
    (directory.parent / "current").symlink_to(COMMIT)
    return directory.parent / "current"


@pytest.fixture
def program(tmp_path):
    """The programs as the role installs them, away from the collection."""
    place = tmp_path / "libexec"
    place.mkdir()
    (place / "weights_finding.py").write_text(findings("WEIGHTS"))
    (place / "weights_manifest.py").write_text(files._standing_alone("manifest"))
    path = place / "weights-check"
    path.write_text(files.program("check"))
    path.chmod(0o755)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-B", path, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"]},
        )

    return run


def test_a_published_model_passes(program, model):
    done = program(model)
    assert done.returncode == 0
    assert "sizes and small files of 3 files" in done.stderr


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: path.write_bytes(b"weights"), "size"),
    ],
)
def test_a_missing_or_short_file_ends_the_start(program, model, damage, kind):
    damage(model / "sub/model.safetensors")
    done = program("--json", model)
    assert done.returncode == 1
    (report,) = json.loads(done.stdout)["models"]
    assert [(one["path"], one["kind"]) for one in report["deviations"]] == [
        ("sub/model.safetensors", kind)
    ]
    assert report["finding"]["code"] == "WEIGHTS-MANIFEST-DAMAGED"


def test_another_byte_shows_in_hashes_only(program, model):
    path = model / "sub/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    assert program(model).returncode == 0
    done = program("--level", "hashes", model)
    assert done.returncode == 1
    assert "error: WEIGHTS-MANIFEST-DAMAGED" in done.stderr
    assert "  remedy: " in done.stderr


def _same_size(path):
    path.write_text(path.read_text()[:-1] + "#")


@pytest.mark.parametrize(
    ("path", "change", "kind"),
    [
        ("modeling.py", _same_size, "hash"),
        ("config.json", _same_size, "hash"),
        ("tokenization.py", lambda path: path.write_text("import os"), "unlisted"),
        ("sub/tokenization.PY", lambda path: path.symlink_to("/dev/null"), "unlisted"),
        ("more", lambda path: path.symlink_to("/tmp"), "unlisted"),
        ("more.py", lambda path: path.mkdir(), "unlisted"),
    ],
)
def test_code_and_settings_that_were_not_published_end_the_start(
    program, model, path, change, kind
):
    change(model / path)
    done = program("--json", model)
    assert done.returncode == 1
    (report,) = json.loads(done.stdout)["models"]
    assert [(one["path"], one["kind"]) for one in report["deviations"]] == [(path, kind)]
    assert report["finding"]["code"] == "WEIGHTS-MANIFEST-DAMAGED"


@pytest.mark.parametrize(
    ("path", "size", "small"),
    [
        ("model.safetensors", 2**20 - 1, True),
        ("model.safetensors", 2**20, False),
        ("tokenizer.json", 64 * 2**20, True),
        ("chat_template.jinja", 2**21, True),
        ("tokenizer.json", 64 * 2**20 + 1, False),
    ],
)
def test_what_is_hashed_at_every_start_is_bounded(path, size, small):
    assert weights_manifest.ManifestFile(path, size, "0" * 64).is_small == small


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()])
def test_an_unmounted_directory_is_no_model(program, tmp_path, make):
    make(tmp_path / "models")
    done = program(tmp_path / "models")
    assert done.returncode == 1
    assert "error: WEIGHTS-ABSENT" in done.stderr


def test_without_a_manifest_it_is_a_warning_unless_one_is_required(program, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    done = program(tmp_path)
    assert (done.returncode, done.stderr.split(":")[0]) == (0, "warning")
    assert program("--require-manifest", tmp_path).returncode == 1


def test_staged_models_are_looked_at_too(model, tmp_path):
    configured = {"models": ["/a"], "stores": [str(tmp_path)]}
    assert weights_check.configured_models(configured) == ["/a", str(model)]


def test_a_damaged_model_refuses_the_list_once_nothing_earlier_differs(model, capsys, tmp_path):
    verify = {"kind": "verify", "directories": [str(model)]}
    assert run_module(converge, capsys, resources=[verify])["resources"] == []
    (model / "config.json").unlink()
    result = run_module(converge, capsys, resources=[verify])
    assert [found["code"] for found in result["findings"]] == ["WEIGHTS-MANIFEST-DAMAGED"]
    earlier = {"kind": "file", "path": str(tmp_path / "brings-it"), "content": "x\n"}
    checked = run_module(converge, capsys, check_mode=True, resources=[earlier, verify])
    assert not checked.get("failed")
    applied = run_module(converge, capsys, resources=[earlier, verify])
    assert applied["failed_resource"] == "verify " + str(model)


def test_progress_is_told_now_and_then(monkeypatch, tmp_path):
    clock = iter([0.0, 1.0, 11.0, 12.0])
    monkeypatch.setattr(weights_check.time, "monotonic", lambda: next(clock))
    with (tmp_path / "log").open("w") as stream:
        progress = weights_check.Progress(4 * 2**30, stream)
        for _step in range(3):
            progress(2**30)
    assert (tmp_path / "log").read_text() == "2.0 of 4.0 GiB, 186 MiB/s, 11 s left\n"


@pytest.fixture
def root(tmp_path):
    """A host with an NFS mount whose device is 0:50, and its readahead as the kernel has it."""
    for directory in ("proc/self", "sys/class/bdi/0:50", "sys/class/bdi/0:51", "etc/apiary"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(
        "1 0 254:1 / / rw - ext4 /dev/vda rw\n"
        "2 1 0:50 / /srv/my\\040models ro - nfs4 nfs-1:/m ro\n"
        "3 1 0:51 / /home rw - nfs4 nfs-1:/home rw\n"
    )
    for device in ("0:50", "0:51"):
        (tmp_path / f"sys/class/bdi/{device}/read_ahead_kb").write_text("128\n")
    mounts = [
        {"path": "/srv/my models", "type": "nfs", "readahead_kib": 15360},
        {"path": "/srv/other", "type": "bind", "readahead_kib": None},
    ]
    (tmp_path / "etc/apiary/weights.json").write_text(json.dumps({"mounts": mounts}))
    return tmp_path


def ahead(root, device):
    return (root / f"sys/class/bdi/{device}/read_ahead_kb").read_text().strip()


@pytest.mark.parametrize("device", ["0:50", None])
def test_readahead_of_our_mount_is_set_and_of_others_is_not(root, device):
    readahead.apply(device, str(root), wait=0)
    assert (ahead(root, "0:50"), ahead(root, "0:51")) == ("15360", "128")


def test_another_device_leaves_ours_alone(root):
    readahead.apply("0:51", str(root), wait=0)
    assert (ahead(root, "0:50"), ahead(root, "0:51")) == ("128", "128")


def test_the_device_comes_before_its_mount(root, monkeypatch):
    """udev runs the program while the kernel is still mounting."""
    info = root / "proc/self/mountinfo"
    whole = info.read_text()
    info.write_text("")
    monkeypatch.setattr(readahead.time, "sleep", lambda _seconds: info.write_text(whole))
    readahead.apply("0:50", str(root), wait=60)
    assert ahead(root, "0:50") == "15360"
