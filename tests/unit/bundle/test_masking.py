# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets go in every form that is promised, and nothing else does."""

import base64
import html
import itertools
import json
import re
import shlex
import urllib.parse

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from apiary.help.bundle.masking import Masker, clean_json, forms
from support.each import each
from support.examples import examples

HARD = "p@ss \"w\\or'd/ä+1% $x"


def _systemd(text):
    """A value in Environment="…" of a unit."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'Environment="X={inner}"'


# Every way of writing that the page on support bundles promises.
FORMS = {
    "plain": str,
    "json": json.dumps,
    "json-utf8": lambda text: json.dumps(text, ensure_ascii=False),
    "json-in-json": lambda text: json.dumps(json.dumps({"a": text})),
    "json-thrice": lambda text: json.dumps(json.dumps(json.dumps([text], ensure_ascii=False))),
    "yaml-quoted": lambda text: yaml.safe_dump(text, default_style="'", width=10**6),
    "yaml-double": lambda text: yaml.safe_dump(text, default_style='"', width=10**6),
    "shell": shlex.quote,
    "systemd": _systemd,
    "repr": repr,
    "url": lambda text: urllib.parse.quote(text, safe=""),
    "url-path": urllib.parse.quote,
    "url-form": urllib.parse.quote_plus,
    "url-twice": lambda text: urllib.parse.quote(urllib.parse.quote(text, safe=""), safe=""),
    "url-lower": lambda text: re.sub(
        "%..", lambda found: found[0].lower(), urllib.parse.quote(text, safe="")
    ),
    "html": html.escape,
    "hex": lambda text: text.encode().hex(),
    "hex-upper": lambda text: text.encode().hex().upper(),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64-bare": lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
    "base64-url": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64-one-before": lambda text: base64.b64encode(b"x" + text.encode() + b"zz").decode(),
    "base64-two-before": lambda text: base64.b64encode(b"xy" + text.encode() + b"z").decode(),
    "base64-user": lambda text: base64.b64encode(b"user:" + text.encode()).decode(),
    "base64-in-url": lambda text: urllib.parse.quote(
        base64.b64encode(text.encode()).decode(), safe=""
    ),
}


PLANTED = [
    HARD,
    "abcd",
    "hunter2!",
    "x" * 200,
    "päßwörd→🔑",
    "a\\\\b\\",
    "+/+/=",
    "tab\there",
    "1234",
]


@each(itertools.product(PLANTED, FORMS))
def test_a_known_secret_goes_in_every_form(secret, form):
    masker = Masker([secret])
    written = FORMS[form](secret)
    assert masker.leaks(written)
    cleaned = masker.text(f"before {written} after")
    assert not masker.leaks(cleaned)
    assert secret not in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.rstrip().endswith("after")
    assert masker.counts["value"]


SECRETS = st.text(min_size=4, max_size=40).filter(
    lambda text: (
        text == text.strip()
        and len(text) >= 4
        and "\n" not in text
        and "\r" not in text
        and "\0" not in text
        and not any(0xD800 <= ord(one) < 0xE000 for one in text)
        and not set("\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e") & set(text)
        and "removed" not in text
        and not re.match(r"[\[{<*$%~!]|(?i:none|null|true|false|yes|no|undefined)", text)
    )
)


@examples(1.5)
@given(SECRETS, st.sampled_from(sorted(FORMS)), st.text(max_size=20), st.text(max_size=20))
@example(HARD, "json-thrice", "", "")
def test_no_planted_secret_survives(secret, form, before, after):
    """What is promised of all forms, for any secret and anything around it."""
    masker = Masker([secret])
    written = FORMS[form](secret)
    cleaned = masker.text(f"{before} {written} {after}")
    assert not masker.leaks(cleaned)
    if not masker.leaks(before) and not masker.leaks(after):
        assert written.strip() not in cleaned


@examples(0.6)
@given(
    SECRETS,
    st.recursive(
        st.one_of(st.text(max_size=12), st.integers(), st.none()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
        ),
        max_leaves=8,
    ),
)
def test_a_document_stays_one_and_has_no_secret(secret, data):
    masker = Masker([secret])
    planted = {
        "data": data,
        "deep": [{"argv": ["--x", f"a{secret}b"], secret: json.dumps([secret])}],
    }
    cleaned = clean_json(masker, json.dumps(planted))
    assert isinstance(json.loads(cleaned), dict)
    assert not masker.leaks(cleaned)


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz", "hf_abc"),
        ("vllm serve --foo --api-key quux77 --port 8000", "quux77"),
        ("https://user:quux77@host/path", "quux77"),
        ("curl -H 'Authorization: Bearer quux77xx'", "quux77"),
        ("curl -H 'x-api-key: quux77xx'", "quux77"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNl"),
        ("AKIAABCDEFGHIJKLMNOP", "AKIA"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJhb"),
        ("-----BEGIN RSA PRIVATE KEY-----\nquux77\n-----END RSA PRIVATE KEY-----", "quux77"),
        ("-----BEGIN PRIVATE KEY-----\nquux77 cut off", "quux77"),
        ("$ANSIBLE_VAULT;1.1;AES256\n" + "6162636465666768" * 4, "61626364"),
        ("    stats auth admin:quux77", "quux77"),
        ("    auth_pass quux77", "quux77"),
    ],
)
def test_what_says_of_itself_that_it_is_a_secret_goes(text, gone):
    masker = Masker()
    cleaned = masker.text(text)
    assert gone not in cleaned
    assert masker.counts == {"pattern": 1}
    assert masker.text(cleaned) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "Avg generation throughput: 12.3 tokens/s, Running: 3 reqs",
        "the password is wrong",
        "http://127.0.0.1:8000/v1/completions",
        "acl us req.hdr(authorization) -m found",
        "password: [removed:value]",
    ],
)
def test_what_is_none_stays(text):
    assert Masker().text(text) == text


def test_of_a_units_environment_only_what_is_listed_stays():
    unit = (
        '[Service]\nEnvironment="K_TOKEN=a b c" HSA_NO_SCRATCH_RECLAIM=1 \\\n  X=quux77\n'
        "Environment=NCCL_MIN_NCHANNELS=112\nExecStart=/usr/libexec/apiary/launch\n"
    )
    assert Masker().unit(unit) == (
        '[Service]\nEnvironment="K_TOKEN=[removed:environment]" "HSA_NO_SCRATCH_RECLAIM=1" '
        '"X=[removed:environment]"\n'
        "Environment=NCCL_MIN_NCHANNELS=112\nExecStart=/usr/libexec/apiary/launch\n"
    )


def test_an_environment_that_cannot_be_read_goes():
    assert "quux" not in Masker().unit('Environment="A=quux\n')


def test_a_number_that_is_a_secret_goes_and_another_stays():
    document = {"password": 123456, "count": 5, "is": True}
    assert Masker(["123456"]).document(document) == {
        "password": "[removed:value]",
        "count": 5,
        "is": True,
    }


def test_lines_of_a_long_secret_go_one_by_one():
    key = "first line of a key\nsecond line of a key 9\nshort"
    assert Masker([key]).text("log: second line of a key 9 end") == "log: [removed:value] end"


@pytest.mark.parametrize("secret", ["abc", "none", "value"])
def test_a_short_secret_or_a_common_word_is_counted_and_stays(secret):
    masker = Masker([secret])
    assert masker.short == 1
    assert masker.text(f"{secret} x") == f"{secret} x"


@pytest.mark.parametrize("secret", ["$ecret123", "$Secret", "<pass>", "{{abc", "!vault1", "%(a)s"])
def test_a_secret_that_looks_like_none_goes(secret):
    assert Masker([secret]).text(f"x {secret} y") == "x [removed:value] y"


def test_the_beginning_of_another_secret_leaves_nothing_of_it():
    assert Masker(["abcd", "abcdefgh"]).text("abcdefgh abcd") == "[removed:value] [removed:value]"


def test_a_secret_has_a_form_for_each_program():
    assert len(set(forms(HARD))) > 20
