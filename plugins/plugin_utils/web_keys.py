# SPDX-License-Identifier: GPL-3.0-or-later

"""TLS and passwords of replicas, Prometheus, Alertmanager, node_exporter, on the controller.

Files of this user alone; what is missing is made once. Beside an authority.pem of the operator's,
which has no authority.key, certificates are the operator's to bring, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import ipaddress
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from .files import read_text, write_text
from .findings import Finding, error

# ansible-core brings it, but its own sanity tests import this file without.
with contextlib.suppress(ImportError):
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.x509.oid import NameOID

_Time = datetime.datetime
_DAY = datetime.timedelta(days=1)
# Begin the names of an authority of ours, and of all that is issued here; no host has a space.
_TITLE, _OWN = "Apiary monitoring", "Apiary"
_SALT = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# The least that bcrypt takes: the password has 256 bits, and whoever asks has one hashed.
_COST = "$2b$05$"


def make_web_keys(
    directory: str, name: str, addresses: Sequence[str], now: _Time | None = None
) -> tuple[Finding, ...]:
    """Make what is missing of passwords, their hashes and what make_certificate makes."""
    folder = Path(directory).absolute()
    for user in ("node", "monitoring"):
        password = _kept(folder / f"{user}.password", partial(secrets.token_urlsafe, 32)).strip()
        digest = folder / f"{user}.hash"
        if not _kept(digest, partial(_hashed, password)).startswith("$2"):
            raise error("MONITORING-BCRYPT", str(digest), "has no hash by bcrypt, $2y$…")
    return make_certificate(directory, name, addresses, now)


def make_certificate(
    directory: str, name: str, addresses: Sequence[str], now: _Time | None = None, host: str = ""
) -> tuple[Finding, ...]:
    """Make what is missing of the authority and NAME.pem.

    ``addresses`` are what others call the program, ``host`` is what HAProxy compares: a name of
    letters, whatever it looks like. The findings are of certificates that end soon.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    folder = Path(directory).absolute()
    authority, signer, own = (
        folder / each for each in ("authority.pem", "authority.key", f"{name}.pem")
    )
    if not os.path.exists(authority):
        # Another authority has another name, which says whose a certificate is.
        title = f"{_TITLE} {secrets.token_hex(4)}"
        _kept(signer, partial(_issued, title, None, 7300, now))
        _kept(authority, lambda: _pem(_certificate(signer)))
    if os.path.exists(signer):
        if _certificate(signer) != _certificate(authority):
            message = "is of another authority than authority.pem: beside your own, remove this key"
            raise error("MONITORING-CERTIFICATE", str(signer), message)
        listed = [*map(_name, (*addresses, "127.0.0.1")), *([x509.DNSName(host)] if host else [])]
        names = x509.SubjectAlternativeName([*dict.fromkeys(listed)])
        make = partial(_issued, f"{_OWN} {name}"[:64], names, 3650, now, str(signer))
        _kept(own, make)
        if _is_stale(_certificate(own), _certificate(authority), names, now):
            write_text(own, make(), 0o600)
    ends = {str(path): _certificate(path).not_valid_after_utc for path in (authority, own)}
    message = "ends on {:%Y-%m-%d}; then nobody who verifies it reads anything"
    return tuple(
        Finding("MONITORING-CERTIFICATE", path, message.format(end), minor=True)
        for path, end in ends.items()
        if end < now + 30 * _DAY
    )


def replica_certificate(
    directory: str, host: str, deployment: str, addresses: Sequence[str]
) -> str:
    """Return a host's certificate and key for a deployment, and the authority's certificate.

    Both are made where they are missing; raises MONITORING-CERTIFICATE for what no engine reads.
    """
    name = f"replicas/{host}/{deployment}"
    make_certificate(directory, name, (host, *addresses), host=host)
    own = os.path.join(directory, f"{name}.pem")
    text = read_text(own)
    _private_key(text, own)
    return f"{text.rstrip()}\n{authority_of(directory)}"


def authority_of(directory: str) -> str:
    """Return the certificates in authority.pem, and nothing else that is in there."""
    path = os.path.join(directory, "authority.pem")
    try:
        listed = x509.load_pem_x509_certificates(read_text(path).encode())
    except ValueError:
        raise error("MONITORING-CERTIFICATE", path, "has other than certificates") from None
    return "".join(map(_pem, listed))


def _kept(path: Path, make: Callable[[], str]) -> str:
    """Return a file's text; the first of all who come at once makes it."""
    if not os.path.exists(path):
        own = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        write_text(own, make(), 0o600)
        try:
            with contextlib.suppress(FileExistsError):
                os.link(own, path)
        except OSError as failure:
            message = f"cannot be made by a link, as CIFS and some others: {failure.strerror}"
            raise error("FILE-UNWRITABLE", str(path), message) from failure
        finally:
            os.unlink(own)
    return read_text(str(path))


def _is_stale(
    own: x509.Certificate, authority: x509.Certificate, names: Iterable[object], now: _Time
) -> bool:
    """Return whether one of ours is of a former authority, lacks a name or ends within a year."""
    ours = (own.issuer, f"CN={_TITLE} "), (own.subject, f"CN={_OWN} ")
    if not any(name.rfc4514_string().startswith(begin) for name, begin in ours):
        return False
    present = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    lacks = own.issuer != authority.subject or not set(names) <= set(present)
    return lacks or own.not_valid_after_utc < now + 365 * _DAY


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read_text(str(path)).encode())
    except ValueError:
        raise error("MONITORING-CERTIFICATE", str(path), "begins with no certificate") from None


def _issued(
    name: str, names: x509.SubjectAlternativeName | None, days: int, now: _Time, by: str = ""
) -> str:
    """Return a certificate for names with its key, signed by that of the file ``by``.

    Without ``by`` it is an authority. It has the extensions that readers of RFC 5280 to the letter
    ask for, as Python does from 3.13 on.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    signer: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = key
    subject = issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    if by:
        issuer = _certificate(Path(by)).subject
        signer = _private_key(read_text(by), by)
    # A host's clock may be behind.
    dates = (now - _DAY, now + days * _DAY)
    number = x509.random_serial_number()
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), number, *dates)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(authority, critical=False)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(own, critical=False)
    if names:
        builder = builder.add_extension(names, critical=False)
    else:
        limits = x509.BasicConstraints(ca=True, path_length=0)
        builder = builder.add_extension(limits, critical=True)
        builder = builder.add_extension(_signs_certificates(), critical=True)
    signed = builder.sign(signer, hashes.SHA256())
    form, encryption = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private_pem = key.private_bytes(serialization.Encoding.PEM, form, encryption)
    return _pem(signed) + private_pem.decode()


def _private_key(text: str, path: str) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    """Return the key of the first certificate of a file, which is in it too."""
    try:
        key = serialization.load_pem_private_key(text.encode(), None)
        certificate = x509.load_pem_x509_certificate(text.encode())
    except (TypeError, ValueError, UnsupportedAlgorithm):
        message = "has no key without a password behind its certificate"
        raise error("MONITORING-CERTIFICATE", path, message) from None
    if not isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        message = "has a key that is neither of RSA nor of an elliptic curve by ECDSA"
        raise error("MONITORING-CERTIFICATE", path, message)
    if key.public_key() != certificate.public_key():
        raise error("MONITORING-CERTIFICATE", path, "has another key than its certificate")
    return key


def _signs_certificates() -> x509.KeyUsage:
    """Return that a key signs certificates and nothing else."""
    names = "digital_signature content_commitment key_encipherment data_encipherment key_agreement"
    unused = dict.fromkeys([*names.split(), "encipher_only", "decipher_only"], False)
    return x509.KeyUsage(key_cert_sign=True, crl_sign=True, **unused)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _name(address: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(address.strip("[]")))
    try:
        return x509.DNSName(address)
    except ValueError:
        message = "no certificate can have this name: use letters of ASCII, or xn--…"
        raise error("MONITORING-CERTIFICATE", address, message) from None


def _hashed(password: str) -> str:
    """Return what programs compare a password with: bcrypt, which is all that they take."""
    salt = _COST + "".join(secrets.choice(_SALT) for _count in range(21)) + "."
    for name in ("libcrypt.so.1", "libcrypt.so.2"):
        with contextlib.suppress(OSError):
            crypt = ctypes.CDLL(name).crypt_r
            crypt.restype = ctypes.c_char_p
            # struct crypt_data: 32 KiB in libxcrypt, 131,232 bytes in glibc (crypt.h).
            data = ctypes.create_string_buffer(1 << 18)
            text: bytes = crypt(password.encode(), salt.encode(), data) or b""
            if text.startswith(_COST.encode()):
                return text.decode()
    raise error("MONITORING-BCRYPT", "libcrypt", "this controller has no bcrypt")
