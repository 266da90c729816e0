# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading somebody's shell text: words, variables, containers, and the engine's command in it."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.command import read_command
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.shell import (
    ShellError,
    commands,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError


def words(text):
    """The words of every command in a text."""
    return [[word.text for word in found] for _, found in commands(text)]


def read(text, version="0.33.0"):
    return read_command(text, version)


def flags(command):
    return [(item.name, *item.values) for item in command.flags]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a b\nc", [["a", "b"], ["c"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a\\\nb", [["ab"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a 'b c' \"d e\"", [["a", "b c", "d e"]]),
        ("a 'b'\"c\"d", [["a", "bcd"]]),
        ("a '$X' \"\\$X\" \\$X", [["a", "$X", "$X", "$X"]]),
        ('a "x\\"y"', [["a", 'x"y']]),
        ("a ''", [["a", ""]]),
        ("a && b || c; d & e | f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a > out 2>&1 b", [["a", "b"]]),
        ("a 2> err < in", [["a"]]),
        ("a\r\nb\r\n", [["a"], ["b"]]),
        ("X=1\na $X ${X}y", [["a", "1", "1y"]]),
        ("X='1 2'\na \"$X\"", [["a", "1 2"]]),
        ("a ${X:-3} ${X-4}", [["a", "3", "4"]]),
        ("X=1\na ${X:-3}", [["a", "1"]]),
        ("a $(nproc) `id`", [["a", "$(nproc)", "`id`"]]),
        ("", []),
        ("# nothing\n", []),
    ],
)
def test_words_are_those_of_a_shell(text, expected):
    assert words(text) == expected


def test_a_variable_without_a_value_stays_and_is_named():
    ((_, found),) = commands("a $X/y")
    assert (found[1].text, found[1].unset) == ("$X/y", ("X",))


def test_lines_are_counted_through_continuations_and_quotes():
    ((_, found),) = commands("# one\na \\\n'b\nc' \\\n  d")
    assert [word.line for word in found] == [2, 3, 5]


@pytest.mark.parametrize(("text", "line"), [("a\nb 'c", 2), ('a "b\nc', 1)])
def test_an_open_quote_is_an_error_with_its_line(text, line):
    with pytest.raises(ShellError, match="not closed") as caught:
        words(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "text",
    [
        "A=1 vllm serve m --seed 7",
        "export A=1\nvllm serve m --seed=7",
        "A=1\nexport A\nvllm serve m --seed 7",
        "declare -x A=1\nvllm serve m --seed 7",
        "env A=1 /opt/vllm/bin/vllm serve m --seed 7",
        "sudo -E nohup env A=1 vllm serve m --seed 7 > log 2>&1 &",
        "A=1 exec vllm serve m --seed 7",
        "A=1 python -m vllm.entrypoints.openai.api_server --model m --seed 7",
        "A=1 python3.12 -u -m vllm.entrypoints.openai.api_server --seed 7 --model=m",
        "A=1 python3 -m vllm.entrypoints.cli.main serve m --seed 7",
        "cd /srv && A=1 vllm serve m --seed 7",
        "docker run -e A=1 --rm -it --device /dev/kfd vllm/vllm-openai-rocm:v0.22.1 m --seed 7",
        "docker run --env=A=1 -dp 8000:8000 vllm/vllm-openai-rocm --model m --seed 7",
        "podman run -v /a:/b -e A=1 --ipc=host rocm/vllm:x vllm serve m --seed 7",
        "A=1 docker run -e A rocm/vllm vllm serve m --seed 7",
        "docker run -e A=1 rocm/vllm bash -c 'vllm serve m --seed 7'",
        'docker run rocm/vllm bash -lc "A=1 vllm serve m --seed 7"',
        "docker exec -e A=1 engine vllm serve m --seed 7",
        "M=m\nexport A=1\nvllm serve $M \\\n  --seed 7",
    ],
)
def test_however_it_is_started_the_command_is_found(text):
    command = read(text)
    assert (command.model, flags(command)) == ("m", [("--seed", "7")])
    assert command.env["A"][0] == "1"
    assert command.findings == ()


def test_variables_outside_a_container_are_not_those_inside():
    command = read("A=1 docker run -e B=2 rocm/vllm vllm serve m")
    assert set(command.env) == {"B"}


def test_values_follow_their_flags():
    command = read(
        "vllm serve m --served-model-name a b --enforce-eager -tp 8 --max_model_len=32k"
        ' --compilation-config \'{"cudagraph_mode": "NONE"}\' -cc.cudagraph_mode=NONE'
        " --seed -1 --no-such x --headless"
    )
    assert flags(command) == [
        ("--served-model-name", "a", "b"),
        ("--enforce-eager",),
        ("-tp", "8"),
        ("--max_model_len", "32k"),
        ("--compilation-config", '{"cudagraph_mode": "NONE"}'),
        ("-cc.cudagraph_mode", "NONE"),
        ("--seed", "-1"),
        ("--no-such", "x"),
        ("--headless",),
    ]
    assert command.model == "m"


def test_what_has_no_value_is_said_once_with_its_line():
    command = read("vllm serve $MODEL \\\n --tensor-parallel-size $TP --seed $TP")
    assert [(item.code, item.subject) for item in command.findings] == [
        ("ENGINE-RECIPE-UNRESOLVED", "command:1"),
        ("ENGINE-RECIPE-UNRESOLVED", "command:2"),
    ]


@pytest.mark.parametrize(
    ("text", "code", "subject"),
    [
        ("", "ENGINE-RECIPE-EMPTY", "command"),
        ("ls -l\n# vllm serve m", "ENGINE-RECIPE-EMPTY", "command"),
        ("docker run ubuntu bash", "ENGINE-RECIPE-EMPTY", "command"),
        ("docker run -e", "ENGINE-RECIPE-EMPTY", "command"),
        ("docker ps", "ENGINE-RECIPE-EMPTY", "command"),
        ("python train.py -m vllm", "ENGINE-RECIPE-EMPTY", "command"),
        ("python -m vllm", "ENGINE-RECIPE-EMPTY", "command"),
        ("python -m http.server", "ENGINE-RECIPE-EMPTY", "command"),
        ("vllm bench serve", "ENGINE-RECIPE-EMPTY", "command"),
        ("a\nvllm serve 'm", "ENGINE-RECIPE-SYNTAX", "command:2"),
        ("docker run rocm/vllm bash -c 'vllm serve \"m'", "ENGINE-RECIPE-SYNTAX", "command:1"),
    ],
)
def test_a_text_without_a_command_is_refused(text, code, subject):
    with pytest.raises(ApiaryError) as caught:
        read(text)
    (finding,) = caught.value.findings
    assert (finding.code, finding.subject) == (code, subject)


def test_a_command_without_arguments_is_one():
    assert read("vllm serve").model is None
