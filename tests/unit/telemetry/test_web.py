# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""TLS and passwords of what is watched: made once, and taken by the real programs."""

import base64
import contextlib
import ctypes
import datetime
import errno
import json
import os
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.module_utils.resources import service_uptake
from ansible_collections.apiary.instinct.plugins.plugin_utils import web_keys
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.plan import telemetry_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    MonitoredHost,
    TelemetrySettings,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.web_keys import make_web_keys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from support.playbooks import run_playbook
from support.telemetry.prometheus import check, program

ROLES = Path(__file__).parents[3] / "roles"
NOW = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
YEAR = datetime.timedelta(days=365)


def role_secrets(role, store):
    """What the role passes to its task as secrets, as a play has it."""
    document, file = store / "play.yml", store / "secrets.json"
    play = {
        "hosts": "gpu-001",
        "gather_facts": False,
        "connection": "local",
        "vars": {f"{role}_web_directory": str(store), "ansible_python_interpreter": sys.executable},
        "vars_files": [str(ROLES / role / "vars/main.yml")],
        "tasks": [{"copy": {"content": f"{{{{ __{role}_web | to_json }}}}", "dest": str(file)}}],
    }
    document.write_text(yaml.safe_dump([play]))
    done = run_playbook("-i", "gpu-001,", document, cwd=store)
    assert done.returncode == 0, done.stdout + done.stderr
    secrets = json.loads(file.read_text())
    document.unlink()
    file.unlink()
    return secrets


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = tmp_path_factory.mktemp("web")
    for role in ("telemetry", "monitoring"):
        assert make_web_keys(str(store), f"gpu-001-{role}", ["127.0.0.1", "10.0.0.1"]) == ()
    return store


@pytest.fixture(scope="module")
def secrets(store):
    return {role: role_secrets(role, store) for role in ("telemetry", "monitoring")}


def contents(store):
    return {path.name: path.read_text() for path in store.iterdir()}


def test_they_are_made_once_and_for_this_user_alone(store):
    before = contents(store)
    make_web_keys(str(store), "gpu-001-telemetry", ["127.0.0.1"])
    assert contents(store) == before
    assert {path.stat().st_mode & 0o777 for path in store.iterdir()} == {0o600}
    assert before["node.password"] != before["monitoring.password"]


def test_a_host_is_given_its_own_key_alone(store, secrets):
    node, watcher = secrets["telemetry"], secrets["monitoring"]
    assert set(node) == {"web.pem", "web.yml"}
    assert node["web.pem"] == (store / "gpu-001-telemetry.pem").read_text() != watcher["web.pem"]
    # No host is given what makes others, and none but who watches a password.
    assert "PRIVATE" not in watcher["authority.pem"]
    assert watcher["node.password"] not in "".join(node.values())


def test_all_who_come_at_once_get_the_same(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: make_web_keys(str(tmp_path), "a", []), range(8)))
    authority, own = (
        x509.load_pem_x509_certificate((tmp_path / name).read_bytes())
        for name in ("authority.pem", "a.pem")
    )
    own.verify_directly_issued_by(authority)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_certificate_holds_for_who_reads_rfc_5280_to_the_letter(store):
    """As Python does from 3.13 on."""
    verify = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile"]
    done = subprocess.run(
        [*verify, store / "authority.pem", store / "gpu-001-telemetry.pem"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_password_of_the_operator_s_may_end_with_a_line(tmp_path):
    (tmp_path / "node.password").write_text("longer than that\n")
    make_web_keys(str(tmp_path), "a", [])
    digest = (tmp_path / "node.hash").read_text()
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    assert crypt(b"longer than that", digest.encode()).decode() == digest


def test_a_hash_that_is_none_is_refused(tmp_path):
    (tmp_path / "node.hash").write_text("apiary:$2y$05$abc\n\n")
    with pytest.raises(ApiaryError, match=r"MONITORING-BCRYPT: .*node\.hash"):
        make_web_keys(str(tmp_path), "a", [])


def test_a_certificate_is_renewed_with_an_address_a_year_ahead_and_with_its_authority(tmp_path):
    def made(addresses, now=NOW):
        assert make_web_keys(str(tmp_path), "a", addresses, now) == ()
        return (tmp_path / "a.pem").read_text()

    first = made(["10.0.0.1"])
    assert made(["10.0.0.1"], NOW + 8 * YEAR) == first
    assert made(["10.0.0.1"], NOW + 9.5 * YEAR) != first
    second = made(["10.0.0.1", "gpu-001"])
    assert made(["10.0.0.1"]) == second
    for name in ("authority.pem", "authority.key"):
        (tmp_path / name).unlink()
    assert made(["10.0.0.1"]) != second


def test_what_the_operator_brings_stays_and_is_told_before_it_ends(tmp_path):
    theirs = tmp_path / "theirs"
    make_web_keys(str(theirs), "a", ["10.0.0.1"], NOW - 9.95 * YEAR)
    own = tmp_path / "own"
    own.mkdir()
    for name in ("authority.pem", "a.pem"):
        (own / name).write_text((theirs / name).read_text())
    [finding] = make_web_keys(str(own), "a", ["10.0.0.1", "gpu-001"], NOW)
    assert (finding.code, finding.severity) == ("MONITORING-CERTIFICATE", "warning")
    assert finding.subject.endswith("own/a.pem")
    assert (own / "a.pem").read_text() == (theirs / "a.pem").read_text()
    assert not (own / "authority.key").exists()
    with pytest.raises(ApiaryError, match=r"FILE-UNREADABLE: .*b\.pem"):
        make_web_keys(str(own), "b", ["10.0.0.2"], NOW)
    (own / "a.pem").write_text("no certificate")
    with pytest.raises(ApiaryError, match="MONITORING-CERTIFICATE"):
        make_web_keys(str(own), "a", ["10.0.0.1"], NOW)


def encrypted(folder):
    """Have the authority's key behind a password, as an operator would keep it."""
    whole = (folder / "authority.key").read_bytes()
    form, lock = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    key = serialization.load_pem_private_key(whole, None)
    pem = key.private_bytes(serialization.Encoding.PEM, form, lock)
    (folder / "authority.key").write_bytes((folder / "authority.pem").read_bytes() + pem)


def no_certificate(folder):
    (folder / "authority.key").write_text("no certificate, no key")


def of_their_own(folder):
    make_web_keys(str(folder / "theirs"), "a", [], NOW)
    (folder / "authority.pem").write_text((folder / "theirs/authority.pem").read_text())


@pytest.mark.parametrize(
    ("change", "names", "expected"),
    [
        (encrypted, "b", r"MONITORING-CERTIFICATE: .*authority\.key.*without a password"),
        (no_certificate, "ab", r"MONITORING-CERTIFICATE: .*authority\.key"),
        (of_their_own, "ab", r"MONITORING-CERTIFICATE: .*authority\.key.*another authority"),
    ],
)
def test_a_key_that_signs_nothing_is_one_error(tmp_path, change, names, expected):
    make_web_keys(str(tmp_path), "a", [], NOW)
    before = (tmp_path / "a.pem").read_text()
    change(tmp_path)
    for name in names:
        with pytest.raises(ApiaryError, match=expected):
            make_web_keys(str(tmp_path), name, [], NOW)
    assert (tmp_path / "a.pem").read_text() == before
    assert not (tmp_path / "b.pem").exists()


def test_a_name_that_no_certificate_can_have_is_one_error(tmp_path):
    with pytest.raises(ApiaryError, match=r"MONITORING-CERTIFICATE: .*gpü-001"):
        make_web_keys(str(tmp_path), "a", ["10.0.0.1", "gpü-001"], NOW)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EPERM])
def test_a_file_system_without_links_is_one_error(tmp_path, monkeypatch, number):
    def link(*_paths):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(ApiaryError, match=r"FILE-UNWRITABLE: .*node\.password.*link"):
        make_web_keys(str(tmp_path), "a", [], NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_closed_is_one_error(tmp_path):
    (tmp_path / "web").write_text("a file")
    with pytest.raises(ApiaryError, match="FILE-UNWRITABLE"):
        make_web_keys(str(tmp_path / "web"), "a", [], NOW)


def test_an_address_in_brackets_is_an_address(tmp_path):
    make_web_keys(str(tmp_path), "a", ["[2001:db8::1]", "2001:db8::1"], NOW)
    made = x509.load_pem_x509_certificate((tmp_path / "a.pem").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["2001:db8::1", "127.0.0.1"]


@pytest.fixture(scope="module")
def files(tmp_path_factory, secrets):
    """The directories as the hosts get them, by role."""
    directories = {}
    for role in ("telemetry", "monitoring"):
        directories[role] = tmp_path_factory.mktemp(role)
        for name, text in secrets[role].items():
            (directories[role] / name).write_text(text)
    return directories


@pytest.mark.parametrize("role", ["telemetry", "monitoring"])
def test_promtool_takes_the_web_configuration(files, role):
    good, said = check("promtool", "check", "web-config", "web.yml", at=files[role])
    assert good, said


@contextlib.contextmanager
def running(name, *words):
    """A real program's port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [program(name), f"--web.listen-address=127.0.0.1:{port}", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "TLS is enabled" in line:
                break
        try:
            yield port
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def exporter(files):
    flag = f"--web.config.file={files['telemetry']}/web.yml"
    with running("prometheus-node-exporter", flag, "--collector.disable-defaults") as port:
        yield port


def ask(port, authority, user="apiary", password=None, scheme="https", address="127.0.0.1"):
    """The status of an answer, 0 where there is none that TLS believes."""
    context = ssl.create_default_context(cafile=str(authority))
    request = urllib.request.Request(f"{scheme}://{address}:{port}/metrics")
    if password:
        shown = base64.b64encode(f"{user}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {shown}")
    with contextlib.suppress(urllib.error.URLError):
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as answer:
                return answer.status
        except urllib.error.HTTPError as refusal:
            return refusal.code
    return 0


def test_a_real_exporter_answers_who_has_the_password_alone(exporter, store):
    authority, words = store / "authority.pem", contents(store)
    assert ask(exporter, authority, password=words["node.password"]) == 200
    assert ask(exporter, authority, password=words["monitoring.password"]) == 401
    assert ask(exporter, authority) == 401
    assert ask(exporter, authority, scheme="http", password=words["node.password"]) == 400
    # Its certificate is for its own addresses.
    assert ask(exporter, authority, address="127.0.0.2", password=words["node.password"]) == 0


def test_a_renewed_certificate_is_taken_without_a_restart(tmp_path, exporter, files):
    make_web_keys(str(tmp_path), "gpu-001-telemetry", ["127.0.0.1"])
    former = {name: (files["telemetry"] / name).read_text() for name in ("web.pem", "web.yml")}
    try:
        for name, text in role_secrets("telemetry", tmp_path).items():
            (files["telemetry"] / f".{name}").write_text(text)
            os.replace(files["telemetry"] / f".{name}", files["telemetry"] / name)
        password = (tmp_path / "node.password").read_text()
        assert ask(exporter, tmp_path / "authority.pem", password=password) == 200
    finally:
        for name, text in former.items():
            (files["telemetry"] / name).write_text(text)


def config(files):
    """Prometheus' configuration of one host, as its check reads it."""
    hosts = [MonitoredHost("gpu-001", "192.0.2.11")]
    return telemetry_plan(hosts, TelemetrySettings(web=str(files["monitoring"])))


def test_prometheus_reads_them_with_the_password_of_their_kind(tmp_path, files):
    plan = config(files)
    for path, text in plan.files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    good, said = check("promtool", "check", "config", "prometheus.yml", at=tmp_path)
    assert good, said
    document = yaml.safe_load(plan.files["prometheus.yml"])
    jobs = {job["job_name"]: job for job in document["scrape_configs"]}
    passwords = {
        name: Path(job["basic_auth"]["password_file"]).name
        for name, job in jobs.items()
        if "scheme" in job
    }
    assert passwords == {
        "node": "node.password",
        "prometheus": "monitoring.password",
        "alertmanager": "monitoring.password",
    }
    [alerts] = document["alerting"]["alertmanagers"]
    assert alerts["scheme"] == "https"
    assert "scheme" not in jobs["vllm"]


def test_an_exporter_without_tls_is_read_as_node_and_gets_no_password(tmp_path, files):
    hosts = [
        MonitoredHost("gpu-001", "192.0.2.11"),
        MonitoredHost("gpu-002", "192.0.2.12", node_web=False),
    ]
    plan = telemetry_plan(hosts, TelemetrySettings(web=str(files["monitoring"])))
    jobs = {
        job["job_name"]: job
        for job in yaml.safe_load(plan.files["prometheus.yml"])["scrape_configs"]
    }
    assert {"scheme", "basic_auth", "tls_config"} & {*jobs["node-plain"]} == set()
    [group] = json.loads(plan.files["targets/node-plain.json"])
    assert group == {
        "targets": ["192.0.2.12:9100"],
        "labels": {"host": "gpu-002", "job": "node"},
    }
    [group] = json.loads(plan.files["targets/node.json"])
    assert group["targets"] == ["192.0.2.11:9100"]
    # Where nothing speaks TLS all are read alike.
    plain = telemetry_plan(hosts, TelemetrySettings())
    assert json.loads(plain.files["targets/node-plain.json"]) == []


def test_a_real_prometheus_confirms_and_reads_a_real_exporter(tmp_path, files, exporter):
    document = yaml.safe_load(config(files).files["prometheus.yml"])
    [job] = [job for job in document["scrape_configs"] if job["job_name"] == "node"]
    del job["file_sd_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{exporter}"]}]
    job["scrape_interval"] = job["scrape_timeout"] = "1s"
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    words = (
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.config.file={files['monitoring']}/web.yml",
    )
    with running("prometheus", *words) as port:
        url = f"https://127.0.0.1:{port}/api/v1"
        access = str(files["monitoring"])
        reported = service_uptake.Service(
            None,
            {
                "service": "prometheus",
                "confirm_url": f"{url}/status/runtimeinfo",
                "confirm_access": access,
            },
        )
        assert reported.confirmed()
        assert not service_uptake._reported(f"{url}/status/runtimeinfo", None)
        deadline = datetime.datetime.now() + datetime.timedelta(seconds=60)
        while True:
            answer = service_uptake.answer(f"{url}/targets?state=active", access)
            [target] = answer["data"]["activeTargets"] or [{"health": "unknown"}]
            if target["health"] == "up" or datetime.datetime.now() > deadline:
                break
        assert target["health"] == "up", target


def issued(store, host, *addresses):
    """Who a host's certificate for replicas is, and what verifies it."""
    text = web_keys.replica_certificate(str(store), host, "demo", addresses)
    own, authority = x509.load_pem_x509_certificates(text.encode())
    own.verify_directly_issued_by(authority)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return own, [str(name.value) for name in names]


def test_replicas_of_a_host_have_a_certificate_of_their_own(tmp_path):
    own, names = issued(tmp_path, "gpu-001", "10.0.0.1")
    assert names == ["gpu-001", "10.0.0.1", "127.0.0.1"]
    # HAProxy compares the common name, too, and no host has such a name.
    (common,) = own.subject
    assert common.value == "Apiary replicas/gpu-001/demo"
    assert issued(tmp_path, "gpu-001", "10.0.0.1")[0] == own
    assert "gpu-001" not in issued(tmp_path, "gpu-002", "10.0.0.2")[1]
    # A host that moved is not who has its address now.
    assert issued(tmp_path, "gpu-001", "10.0.0.9")[1] == ["gpu-001", "10.0.0.9", "127.0.0.1"]
    # HAProxy compares letters, whatever they look like.
    assert issued(tmp_path, "10.0.0.3")[1] == ["10.0.0.3", "127.0.0.1", "10.0.0.3"]


def test_what_an_authority_of_the_operator_s_has_issued_here_is_renewed_too(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    own_authority(tmp_path, key, hashes.SHA256(), key)
    make_web_keys(str(tmp_path), "a", [], NOW)
    first = (tmp_path / "a.pem").read_text()
    make_web_keys(str(tmp_path), "a", [], NOW + 8 * YEAR)
    assert (tmp_path / "a.pem").read_text() == first
    make_web_keys(str(tmp_path), "a", [], NOW + 9.5 * YEAR)
    assert (tmp_path / "a.pem").read_text() != first


def own_authority(store, key, digest, written, encryption=None):
    """An authority.pem and authority.key of the operator's, with a key that may be another."""
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "Our own")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + 20 * YEAR)
    limits = x509.BasicConstraints(ca=True, path_length=0)
    signed = builder.add_extension(limits, critical=True).sign(key, digest)
    text = signed.public_bytes(serialization.Encoding.PEM).decode()
    pem = written.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        encryption or serialization.NoEncryption(),
    ).decode()
    (store / "authority.pem").write_text(text)
    (store / "authority.key").write_text(text + pem)


@pytest.mark.parametrize("case", ["ed25519", "encrypted", "another", "none"])
def test_a_key_that_signs_nothing_is_one_finding(tmp_path, case):
    key = ec.generate_private_key(ec.SECP256R1())
    if case == "ed25519":
        key = ed25519.Ed25519PrivateKey.generate()
    other = ec.generate_private_key(ec.SECP256R1()) if case == "another" else key
    secret = serialization.BestAvailableEncryption(b"x") if case == "encrypted" else None
    own_authority(tmp_path, key, None if case == "ed25519" else hashes.SHA256(), other, secret)
    if case == "none":
        pem = (tmp_path / "authority.pem").read_text()
        (tmp_path / "authority.key").write_text(pem)
    with pytest.raises(ApiaryError) as raised:
        make_web_keys(str(tmp_path), "a", [])
    (finding,) = raised.value.findings
    assert (finding.code, finding.severity) == ("MONITORING-CERTIFICATE", "error")
    assert finding.subject == str(tmp_path / "authority.key")
