# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What no well-behaved hub does, and what a proxy, a mirror or an attacker may do in its place."""

import datetime
import ipaddress
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.weights import REPOSITORY, hub_double

COMMIT = "0" * 40
SHA256 = "f" * 64


@pytest.fixture
def answering():
    """Serve fixed answers, by the beginning of a path, over HTTP or TLS; return the endpoint."""
    servers = []

    def answering(answers, context=None):
        class Answering(BaseHTTPRequestHandler):
            def log_message(self, *_arguments):
                pass

            def do_GET(self):
                answering.seen.append((self.path, "Authorization" in self.headers))
                for path, (status, headers, body) in answers.items():
                    if self.path.startswith(path):
                        self.send_response(status)
                        for key, value in {"Content-Length": len(body), **headers}.items():
                            self.send_header(key, str(value))
                        self.end_headers()
                        self.wfile.write(body)
                        return
                self.send_error(404)

        server = HTTPServer(("127.0.0.1", 0), Answering)
        # A client that refuses the certificate is no news here.
        server.handle_error = lambda *_arguments: None
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"

    answering.seen = []
    yield answering
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("hf_secret")
    path.chmod(0o400)
    return str(path)


TREE = f"/api/models/{REPOSITORY}/tree/"


@pytest.mark.parametrize(
    "listing",
    [
        b"{}",
        b"[1]",
        b'[{"path": "a"}]',
        b'[{"path": "a", "size": -1, "oid": "%s"}]' % (b"0" * 40),
        b'[{"path": "a", "size": 1, "oid": "abc"}]',
        b'[{"path": 7, "size": 1, "oid": "%s"}]' % (b"0" * 40),
        b'[{"path": "a", "size": 1, "oid": "x", "lfs": {"oid": "abc", "size": 1}}]',
        b'[{"path": "a", "size": 1, "oid": "x", "lfs": {}}]',
        b'"',
    ],
)
def test_a_listing_that_is_none_is_refused(refused, answering, listing):
    endpoint = answering({TREE: (200, {}, listing)})
    assert refused(COMMIT, endpoint=endpoint) == "WEIGHTS-FETCH-LISTING"


def test_a_listing_that_goes_on_elsewhere_is_refused(refused, answering):
    link = {"Link": '<http://elsewhere.example/x>; rel="next"'}
    endpoint = answering({TREE: (200, link, b"[]")})
    assert refused(COMMIT, endpoint=endpoint) == "WEIGHTS-FETCH-LISTING"


def test_a_listing_that_never_ends_is_refused(refused, answering):
    link = {"Link": '<?more>; rel="next"'}
    endpoint = answering({TREE: (200, link, b"[]")})
    assert refused(COMMIT, endpoint=endpoint) == "WEIGHTS-FETCH-LISTING"


def test_a_listing_that_is_cut_is_asked_for_again(refused, answering):
    endpoint = answering({TREE: (200, {"Content-Length": 100}, b"[]")})
    assert refused(COMMIT, endpoint=endpoint) == "WEIGHTS-FETCH-NETWORK"


def test_redirects_that_never_end_are_refused(refused, answering):
    endpoint = answering({"/": (302, {"Location": "/again"}, b"")})
    assert refused(COMMIT, endpoint=endpoint) == "WEIGHTS-FETCH-REFUSED"


def test_a_renamed_repository_is_followed_with_the_token(run, answering, token_file):
    moved = {"Location": "/moved"}
    body = b'{"sha": "%s"}' % COMMIT.encode()
    endpoint, seen = answering({"/moved": (200, {}, body), "/": (307, moved, b"")}), []
    answering.seen = seen
    run("main", endpoint=endpoint, token_file=token_file)
    assert seen == [("/api/models/apiary-lab/tiny/revision/main", True), ("/moved", True)]


def test_another_port_is_another_host_to_a_token(run, hub, answering, token_file):
    moved = {"Location": f"{hub.endpoint}/api/models/{REPOSITORY}/revision/main"}
    run("main", endpoint=answering({"/": (307, moved, b"")}), token_file=token_file)
    assert [one.headers.get("authorization") for one in hub.asked] == [None]


def test_an_answer_with_another_range_is_refused(refused, hub, commit, monkeypatch):
    name = "model-00001-of-00002.safetensors"
    content = hub_double.Handler.content

    def wrong(self, body, headers, fault):
        if "Range" in self.headers:
            self.headers.replace_header("Range", "bytes=7-")
        content(self, body, headers, fault)

    hub.faults = {name: hub_double.Fault(body="truncate", times=1)}
    monkeypatch.setattr(hub_double.Store, "content", wrong)
    assert refused(commit, parallel=1) == "WEIGHTS-FETCH-REFUSED"


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 that nobody signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")])
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_certificate_that_does_not_hold(refused, answering, tls):
    endpoint = answering({"/": (200, {}, b"[]")}, tls)
    assert refused(COMMIT, endpoint=endpoint) == "WEIGHTS-FETCH-TLS"


def test_https_is_not_left(refused, answering, tls, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    endpoint = answering({"/": (302, {"Location": "http://127.0.0.1/x"}, b"")}, tls)
    assert refused(COMMIT, endpoint=endpoint) == "WEIGHTS-FETCH-REFUSED"
