# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets go in every form that is promised, and nothing else does."""

import base64
import html
import json
import re
import shlex
import urllib.parse

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apiary.help.bundle.redact import Redactor, clean_json

HARD = "p@ss \"w\\or'd/ä+1% $x"


def _systemd(text):
    """A value in Environment="…" of a unit."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'Environment="X={inner}"'


# Every way of writing that bundle_forms promises.
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
    "html-numbers": lambda text: "".join(
        one if one.isascii() and one.isalnum() else f"&#{ord(one)};" for one in text
    ),
    "hex": lambda text: text.encode().hex(),
    "hex-upper": lambda text: text.encode().hex().upper(),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64-bare": lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
    "base64-url": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64-one-before": lambda text: base64.b64encode(b"x" + text.encode() + b"zz").decode(),
    "base64-two-before": lambda text: base64.b64encode(b"xy" + text.encode() + b"z").decode(),
    "base64-user": lambda text: base64.b64encode(b"user:" + text.encode()).decode(),
    "base64-lines": lambda text: base64.encodebytes(b"12345" * 20 + text.encode()).decode(),
    "base64-in-json": lambda text: json.dumps(
        base64.encodebytes(b"1234" * 20 + text.encode()).decode()
    ),
    "base64-in-url": lambda text: urllib.parse.quote(
        base64.b64encode(text.encode()).decode(), safe=""
    ),
}


@pytest.mark.parametrize("write", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "secret",
    [HARD, "abcd", "hunter2!", "x" * 200, "päßwörd→🔑", "a\\\\b\\", "+/+/=", "tab\there", "1234"],
)
def test_a_known_secret_goes_in_every_form(secret, write):
    redactor = Redactor([secret])
    written = write(secret)
    assert redactor.leaks(written)
    cleaned = redactor.text(f"before {written} after")
    assert not redactor.leaks(cleaned)
    assert secret not in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.rstrip().endswith("after")
    assert redactor.counts["known"]


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


@settings(max_examples=150, deadline=None)
@given(SECRETS, st.sampled_from(sorted(FORMS)), st.text(max_size=20), st.text(max_size=20))
@example(HARD, "json-thrice", "", "")
def test_no_planted_secret_survives(secret, form, before, after):
    """What is promised of all forms, for any secret and anything around it."""
    redactor = Redactor([secret])
    written = FORMS[form](secret)
    cleaned = redactor.text(f"{before} {written} {after}")
    assert not redactor.leaks(cleaned)
    if not redactor.leaks(before) and not redactor.leaks(after):
        assert written.strip() not in cleaned


@settings(max_examples=60, deadline=None)
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
    redactor = Redactor([secret])
    planted = {
        "data": data,
        "deep": [{"argv": ["--x", f"a{secret}b"], secret: json.dumps([secret])}],
    }
    cleaned = clean_json(redactor, json.dumps(planted))
    assert isinstance(json.loads(cleaned), dict)
    assert not redactor.leaks(cleaned)


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz", "hf_abc"),
        ("vllm serve --foo --api-key quux77 --port 8000", "quux77"),
        ('"--api-key", "quux77", "--port"', "quux77"),
        ('Environment="VLLM_API_KEY=two words"', "words"),
        ("docker run -e HF_TOKEN=quux77 -e X=1", "quux77"),
        ("password: quux77", "quux77"),
        ('{"a": "{\\"password\\": \\"quux77\\"}"}', "quux77"),
        ("https://user:quux77@host/path", "quux77"),
        ("git+ssh://a1b2c3d4e5f6g7h8i9@host/x", "a1b2c3"),
        ("curl -H 'Authorization: Bearer quux77xx'", "quux77"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNl"),
        ("X-Api-Key: quux77", "quux77"),
        ("Set-Cookie: session=quux77", "quux77"),
        ("GET /x?token=quux77&a=1", "quux77"),
        ("AKIAABCDEFGHIJKLMNOP", "AKIA"),
        ("aws_secret_access_key = quux77/77", "quux77"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJhb"),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nquux77\n-----END OPENSSH PRIVATE KEY-----",
            "quux77",
        ),
        ("-----BEGIN RSA PRIVATE KEY-----\\nquux77\\n-----END RSA PRIVATE KEY-----", "quux77"),
        ("-----BEGIN PRIVATE KEY-----\nquux77 cut off", "quux77"),
        ("    stats auth admin:quux77", "quux77"),
        ("    auth_pass quux77", "quux77"),
        ("root:$6$salt$abcdefghijklmnop:1:2", "abcdefgh"),
        ("machine h login u password quux77", "quux77"),
        ("token: |\n   quux77", "quux77"),
        ("$ANSIBLE_VAULT;1.1;AES256\n" + "6162636465666768" * 4, "61626364"),
        ("https://hooks.slack.com/services/T0/B0/quux77", "quux77"),
        ("-----BEGIN%20RSA%20PRIVATE%20KEY-----%0Aquux77%0A-----END%20RSA", "quux77"),
        (f"LS0tLS1CRUdJTiBPUEVOU1NI{'b' * 50}\n{'quux77' * 8}\nquux77==", "quux77"),
        (f"h a: {'b' * 64}\nh a: quux77{'c' * 58}\nh a: -----END RSA PRIVATE KEY-----", "quux77"),
        ("Private-Lines: 1\nquux77quux77\nPrivate-MAC: 00", "quux77"),
        ("curl -sS -u admin:quux77 https://h/x", "quux77"),
        ("sshpass -p quux77 ssh h", "quux77"),
        ("mysql -uroot -pquux77 db", "quux77"),
        ("MYSQL_PWD=quux77", "quux77"),
        ("db_pw: quux77", "quux77"),
        ("api_tokens:\n  - quux77x\n", "quux77"),
        ("router_tokens: [quux77x, b]", "quux77"),
        ("passwords:\n- quux77\n", "quux77"),
        ("password:\n  value: quux77\n", "quux77"),
        ("password: >-\n  quux77\n", "quux77"),
        ("password: two words quux77\n", "quux77"),
        ("password: a'b,c;d<quux77\n", "quux77"),
        ("password: $quux77\n", "quux77"),
        ("password: 'a''quux77'\n", "quux77"),
        ('log: {"password": "a\\"quux77"}', "quux77"),
        ("password = '''quux77'''", "quux77"),
        ("db_password=a&b;quux77", "quux77"),
        ("<db-password>quux77</db-password>", "quux77"),
        ("vllm serve --api-key one1 quux77 --port 1", "quux77"),
        ("vllm\0serve\0--api-key\0quux77\0--port", "quux77"),
        ("- name: HF_TOKEN\n  value: quux77\n", "quux77"),
        ('x "auths": {"r": {"auth": "quux77quux77"}}', "quux77"),
        ("machine h\n  password quux77\n  login u", "quux77"),
        ("default login u password quux77", "quux77"),
        ("https://h/x?X-Amz-Signature=quux77quux77&x=1", "quux77"),
        ("https://cdn/x?Signature=quux77quux77~a__&Key-Pair-Id=K", "quux77"),
        ("routing_key: quux77", "quux77"),
        ("https://discord.com/api/webhooks/1234567/quux77", "quux77"),
        ("https://api.telegram.org/bot123456789:quux77quux77quux77xx/x", "quux77"),
        ("OTEL_EXPORTER_OTLP_HEADERS=x-team=quux77", "quux77"),
        ("authentication { auth_type PASS auth_pass quux77 }", "quux77"),
        ("requirepass quux77", "quux77"),
        ("  setenv HF_TOKEN quux77", "quux77"),
        ("u:$apr1$salt$quux77quux77", "quux77"),
        ("next=https%3A%2F%2Fu%3Aquux77%40h%2F", "quux77"),
        # As vLLM logs its arguments: a list, even of one.
        ("non-default args: {'api_key': ['one1', 'quux77'], 'model': 'x'}", "quux77"),
        ("Namespace(api_key=['quux77'], model='x')", "quux77"),
        ('log: {\\"api_key\\": [\\"quux77\\"]}', "quux77"),
        # As Ansible prints a command.
        ("cmd:\n- vllm\n- --api-key\n- quux77\n- --port\n", "quux77"),
        ('{"cmd": ["curl", "-sS", "-u", "admin:quux77", "https://h"]}', "quux77"),
        ('{\\"cmd\\": [\\"curl\\", \\"--user\\", \\"admin:quux77\\"]}', "quux77"),
        ("acl us req.hdr(x-api-key) -m str quux77", "quux77"),
        ("SSHPASS=quux77 sshpass -e ssh h", "quux77"),
        ("user_tokens:\n  bob: quux77\n", "quux77"),
        # Names whose end looks like that of a count.
        ("AWS_SESSION_TOKEN=quux77", "quux77"),
        ("admin_token: quux77", "quux77"),
        ("authorization:\n  type: Bearer\n  credentials: quux77\n", "quux77"),
        ("docker login --username u -p quux77 registry", "quux77"),
        ("xapp-1-A0-123-quux77", "quux77"),
        ("hvs.quux77quux77quux77quux77", "quux77"),
        (f"pypi-{'quux77' * 6}", "quux77"),
    ],
)
def test_what_looks_like_a_secret_goes(text, gone):
    redactor = Redactor()
    cleaned = redactor.text(text)
    assert gone not in cleaned
    assert "[removed:" in cleaned
    assert sum(redactor.counts.values()) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "Avg generation throughput: 12.3 tokens/s, Running: 3 reqs",
        "--max-num-batched-tokens 8192 --max-model-len 32768",
        '"max_tokens": 16, "prompt_tokens": 5, "num_tokens": 7',
        "tokenizer='/models/qwen3', tokenizer_mode=auto, skip_tokenizer_init=False",
        "time_per_output_token_seconds_sum 12.5",
        "the password is wrong",
        "secrets: [HF_TOKEN]",
        "VLLM_API_KEY={{ vault_engine_key }}",
        "token=$HF_TOKEN",
        "PasswordAuthentication no",
        "http://127.0.0.1:8000/v1/completions",
        "ansible_ssh_private_key_file=/root/.ssh/id_ed25519",
        'router_tokens:\n  batch: {key: "{{ vault_batch }}"}\nport: 8000\n',
        "secrets:\n  names: [VLLM_API_KEY]\nother: value\n",
        "  prefill_token: 6.7e-08",
        'keys: ["header:X-Session-Id", "cookie:session"]',
        "container prepare --credentials /etc/apiary/x/credentials --keep vllm",
        "ansible ALL=(ALL) NOPASSWD:ALL",
        "'secrets': ['VLLM_API_KEY', 'HF_TOKEN']",
        "docker run --publish 80:80 -p 8000:8000 image",
        "input_token: many, per_output_token=x",
        "password: [removed:known]",
        "acl us req.hdr(authorization) -m found",
        "if { req.fhdr(Authorization) -m beg -i 'Bearer ' }",
        "user_max_tokens: 5, output_tokens: many",
        "- my-token\n- other\n- --api-key\n- --port\n",
    ],
)
def test_what_is_none_stays(text):
    assert Redactor().text(text) == text


def test_documents_are_cleaned_by_their_names():
    cleaned = Redactor().document(
        {
            "replicas_secrets": {"VLLM_API_KEY": "quux77", "N": 7},
            "secrets": ["VLLM_API_KEY"],
            "env": [{"name": "HF_TOKEN", "value": "quux77"}, {"name": "A", "value": "b"}],
            "argv": ["--api-key", "quux77", "--port", "8000"],
            "password": 123456,
            "max_tokens": 5,
            "empty_token": "",
        }
    )
    assert cleaned == {
        "replicas_secrets": {"VLLM_API_KEY": "[removed:named]", "N": "[removed:named]"},
        "secrets": ["VLLM_API_KEY"],
        "env": [{"name": "HF_TOKEN", "value": "[removed:named]"}, {"name": "A", "value": "b"}],
        "argv": ["--api-key", "[removed:named]", "--port", "8000"],
        "password": "[removed:named]",
        "max_tokens": 5,
        "empty_token": "",
    }


def test_a_secret_that_one_name_shows_goes_everywhere():
    redactor = Redactor()
    redactor.learn("MY_TOKEN=abcDEF123456789")
    assert redactor.text("argv: --foo abcDEF123456789") == "argv: --foo [removed:known]"


def test_lines_of_a_long_secret_go_one_by_one():
    key = "first line of a key\nsecond line of a key 9\nshort"
    redactor = Redactor([key])
    assert redactor.text("log: second line of a key 9 end") == "log: [removed:known] end"


def test_a_short_secret_is_counted_and_only_its_name_shows_it():
    redactor = Redactor(["abc"])
    assert redactor.short == 1
    assert redactor.text("abc password=abc") == "abc password=[removed:named]"


def test_a_long_run_of_base64_takes_no_time():
    redactor = Redactor([HARD])
    text = "A" * 1_000_000
    assert redactor.text(text) == text


def test_a_long_run_of_backslashes_takes_no_time():
    redactor = Redactor(['a"\\"\\"\\b'])
    text = "a" + "\\" * 20_000
    assert redactor.text(text) == text


PGP = ["-----BEGIN PGP PRIVATE KEY BLOCK-----", "Version: 1", "", "quux77" * 10, "=qu77"]
KEY = ["-----BEGIN RSA PRIVATE KEY-----", "a" * 64, "quux77" * 10, "-----END RSA PRIVATE KEY-----"]


@pytest.mark.parametrize(
    "data",
    [
        {"stdout_lines": KEY},
        [KEY[0], "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0", "", *KEY[2:]],
        [*PGP, "-----END PGP PRIVATE KEY BLOCK-----"],
        [{"line": one} for one in KEY],
        [f"Nov 22 10:00:00 gpu-001 x[1]: {one}" for one in KEY],
        ["$ANSIBLE_VAULT;1.1;AES256", "6162" * 20, "71757578", "x"],
        {"auths": {"registry": {"auth": "quux77quux77"}}},
        ["/usr/bin/curl", "-u", "admin:quux77", "https://h"],
        ["vllm", "--api-key", "one1", "quux77", "--port", "1"],
        {"router_tokens": {"alice": "quux77"}},
    ],
)
def test_a_secret_in_parts_of_a_document_goes(data):
    cleaned = clean_json(
        Redactor(), json.dumps([data, {"after": "https://host/x", "n": "plain-1"}])
    )
    assert not re.search("quux77|71757578", cleaned)
    assert json.loads(cleaned)[1] == {"after": "https://host/x", "n": "plain-1"}


def test_what_follows_a_key_in_a_document_stays():
    assert Redactor().document([*KEY, "plain"])[-1] == "plain"


@pytest.mark.parametrize("secret", ["$ecret123", "$Secret", "<pass>", "{{abc", "!vault1", "%(a)s"])
def test_a_known_secret_that_looks_like_none_goes(secret):
    assert Redactor([secret]).text(f"x {secret} y") == "x [removed:known] y"


def test_a_secret_that_is_a_common_word_is_counted_as_a_short_one():
    redactor = Redactor(["none"])
    assert redactor.short == 1
    assert redactor.text("none password: none") == "none password: none"
