# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import re
import subprocess
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.unit import (
    environment_file,
    quote,
    quote_argument,
)
from hypothesis import given
from hypothesis import strategies as st

from support.host.environment_file import parse

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
# What systemd hands on: no control characters but tab and newline.
VALUES = st.text(
    st.one_of(
        st.characters(codec="utf-8", exclude_categories=["Cc"]),
        st.sampled_from("\n\t\"'\\`$#; %="),
    )
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


def unquoted(text):
    """Read a quoted word back by the rules of systemd.syntax(7)."""
    assert text.startswith('"')
    assert text.endswith('"')
    inner = re.sub(
        r"\\(x[0-9a-f]{2}|.)",
        lambda found: (
            {"n": "\n", "t": "\t"}.get(found[1]) or chr(int(found[1][1:], 16))
            if found[1][0] in "ntx"
            else found[1]
        ),
        text[1:-1],
    )
    return inner.replace("%%", "%")


@given(WORDS)
def test_quoted_words_read_back(word):
    assert unquoted(quote(word)) == word


@given(WORDS)
def test_quoted_words_stay_on_their_line(word):
    assert not set(quote(word)) & set("\n\r\t\0")


@given(WORDS)
def test_quoted_arguments_read_back(word):
    shown = quote_argument(word)
    if shown.startswith('"'):
        shown = unquoted(shown.replace("$$", "$"))
    assert shown == word


def test_json_keeps_its_quotes():
    assert quote_argument('{"mode": "x"}') == '"{\\"mode\\": \\"x\\"}"'


def test_an_empty_argument_is_one():
    assert quote_argument("") == '""'


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_an_environment_file_reads_back(variables):
    assert parse(environment_file(variables)) == variables


def test_plain_values_stay_readable():
    assert environment_file({"B": "a,b:c/d=1", "A": "0"}) == "A=0\nB=a,b:c/d=1\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("A\nLD_PRELOAD", "x"),
        ("A-B", "x"),
        ("", "x"),
        ("1A", "x"),
        ("A", "a\x00"),
        ("A", "\x1b[0m"),
    ],
)
def test_what_systemd_would_drop_is_refused(name, value):
    with pytest.raises(ApiaryError) as refusal:
        environment_file({name: value})
    assert refusal.value.findings[0].code == "REPLICA-VARIABLE"


HARD = {
    "JSON": '{"a": ["b c", "d\\"e"], "f": "$HOME `id` 100%"}',
    "QUOTES": 'it\'s "quoted" \\ and \\n not a newline',
    "LINES": "one\ntwo\n  three # no comment\n",
    "SPACES": "  kept  ",
    "EMPTY": "",
    "UNICODE": "Grüße, 世界",
    "HASH": "#1;2",
}


@pytest.mark.skipif(not Path("/run/systemd/system").is_dir(), reason="systemd is not running here")
def test_real_systemd_reads_hard_values_back(tmp_path):
    path = tmp_path / "hard.env"
    path.write_text(environment_file(HARD))
    command = ["systemd-run", "--wait", "--pipe", "--quiet", f"--property=EnvironmentFile={path}"]
    shown = subprocess.run(
        [*command, "/usr/bin/env", "-0"], capture_output=True, text=True, check=True
    ).stdout
    found = dict(entry.split("=", 1) for entry in shown.split("\0") if entry)
    assert {name: found.get(name) for name in HARD} == HARD
