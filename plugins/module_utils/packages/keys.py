# SPDX-License-Identifier: GPL-3.0-or-later

"""Read OpenPGP public keys, tell their fingerprints and keep the one that was asked for.

A host need not have gpg for it. Formats: RFC 4880 (packets 4.2, armor 6, fingerprints 12.2).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator

PUBLIC_KEY = 6
ARMOR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)
CRC24_START, CRC24_POLYNOMIAL = 0xB704CE, 0x1864CFB
LINE = 64


class KeyProblem(Exception):  # noqa: N818 - it never leaves the module
    """What is wrong with a key file, in words."""


class WrongKey(KeyProblem):
    """The file is a keyring without the key that was asked for."""


def crc24(data: bytes) -> int:
    """Return the checksum of armored data."""
    crc = CRC24_START
    for byte in data:
        crc ^= byte << 16
        for _bit in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= CRC24_POLYNOMIAL
    return crc


def dearmor(data: bytes) -> bytes:
    """Return the packets of a key file, armored or binary."""
    blocks = ARMOR.findall(data)
    if not blocks:
        return data
    return b"".join(_block(block) for block in blocks)


def _block(block: bytes) -> bytes:
    """Return the packets of one armored block, its checksum tested where it has one."""
    _headers, _blank, body = block.replace(b"\r\n", b"\n").partition(b"\n\n")
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    checksum = lines.pop() if lines and lines[-1].startswith(b"=") else None
    try:
        packets = base64.b64decode(b"".join(lines), validate=True)
        told = base64.b64decode(checksum[1:], validate=True) if checksum else None
    except binascii.Error:
        raise KeyProblem("is no armored OpenPGP key") from None
    if told is not None and int.from_bytes(told, "big") != crc24(packets):
        raise KeyProblem("is damaged: its checksum does not fit")
    return packets


def armor(packets: bytes) -> bytes:
    """Return packets in the armored form that rpm reads."""
    text = base64.b64encode(packets)
    lines = [text[start : start + LINE] for start in range(0, len(text), LINE)]
    checksum = base64.b64encode(crc24(packets).to_bytes(3, "big"))
    head, foot = (b"-----%s PGP PUBLIC KEY BLOCK-----" % word for word in (b"BEGIN", b"END"))
    return b"\n".join([head, b"", *lines, b"=" + checksum, foot, b""])


def split(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield each packet's tag, body and whole bytes."""
    place = 0
    while place < len(data):
        start = place
        head = data[place]
        if not head & 0x80:
            raise KeyProblem("is no OpenPGP key")
        place += 1
        if head & 0x40:
            tag = head & 0x3F
            length, place = _new_length(data, place)
        else:
            tag = head >> 2 & 0xF
            size = (1, 2, 4, 0)[head & 3]
            length = int.from_bytes(data[place : place + size], "big")
            place += size
            if not size:
                raise KeyProblem("is no OpenPGP key: a packet has no length")
        end = place + length
        if end > len(data):
            raise KeyProblem("is cut off")
        yield tag, data[place:end], data[start:end]
        place = end


def _new_length(data: bytes, place: int) -> tuple[int, int]:
    """Return a length in the new format, and where it ends."""
    first = data[place] if place < len(data) else 0
    if first < 192:
        return first, place + 1
    if first < 224:
        second = data[place + 1] if place + 1 < len(data) else 0
        return (first - 192 << 8) + second + 192, place + 2
    if first == 255:
        return int.from_bytes(data[place + 1 : place + 5], "big"), place + 5
    raise KeyProblem("is no OpenPGP key: a packet of it comes in parts")


def keys(data: bytes) -> dict[str, bytes]:
    """Return the packets of each primary key by its fingerprint, 40 upper-case digits.

    Keys of versions other than 4 are left out: what names them is no such fingerprint.
    """
    found: dict[str, bytes] = {}
    current = ""
    for tag, body, whole in split(dearmor(data)):
        if tag == PUBLIC_KEY:
            current = fingerprint(body) if body[:1] == b"\x04" else ""
        if current:
            found[current] = found.get(current, b"") + whole
    return found


def fingerprint(body: bytes) -> str:
    """Return the fingerprint of a public key packet of version 4."""
    # It is the format's own digest, so FIPS mode must allow it; it names a key that we pinned.
    digest = hashlib.new("sha1", usedforsecurity=False)
    digest.update(b"\x99" + len(body).to_bytes(2, "big") + body)
    return digest.hexdigest().upper()


def chosen(data: bytes, wanted: str) -> bytes:
    """Return the packets of the wanted key alone; apt would trust every other key in the file.

    Raises WrongKey, with what is there instead, or KeyProblem.
    """
    found = keys(data)
    name = "".join(wanted.split()).upper()
    if name not in found:
        raise WrongKey(", ".join(sorted(found)) or "no key")
    return found[name]
