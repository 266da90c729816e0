# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways one secret may be written, as one regular expression each: no I/O."""

from __future__ import annotations

import base64
import html.entities
import re
from dataclasses import dataclass

# Shorter ones would be found everywhere.
SHORTEST = 4
_NAMED = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_QUOTES = {
    # A shell, YAML and CSV write a quote within quotes as these.
    "'": (r"'\\+''", "''", "'\"'\"'"),
    '"': ('""',),
    # systemd's own escapes in a unit.
    "$": (r"\$\$",),
    "%": ("%%",),
    " ": (r"\+",),
    "\n": (r"\r\n", r"\\+r\\+n", r"\\+n", "(?i:%0D%0A)"),
    "\r": (r"\\+r",),
    "\t": (r"\\+t",),
}
# C's and YAML's escapes by a letter, of signs that are not above.
_LETTERS = {
    7: "a",
    8: "b",
    11: "v",
    12: "f",
    27: "e",
    0x85: "N",
    0xA0: "_",
    0x2028: "L",
    0x2029: "P",
}
_BREAK = r"(?:\s|\\+[nr])*"


@dataclass(frozen=True)
class Form:
    """A way to write a secret: the expression, and a part that is there wherever it is.

    ``within`` says of which text that part is: as it is, in lower case, or without line breaks.
    ``whole`` has the run of base64 around a match removed as well.
    """

    pattern: re.Pattern[str]
    part: str
    within: str = "plain"
    whole: bool = False


def forms(value: str) -> tuple[Form, ...]:
    """Return the forms of one secret: verbatim, escaped, URL-encoded, base64 at any place, hex.

    Escapes are those of JSON (nested, too), YAML, shells, systemd, HTML, C and URLs, in any
    mixture. Base64 is the standard one or that for URLs, padded or not, broken into lines or not,
    and alone or amid other text, such as of USER:PASSWORD.
    """
    found = [Form(re.compile(_escaped(value)), _part(value))]
    content = value.encode("utf-8", "surrogatepass")
    for altered in dict.fromkeys((base64.b64encode, base64.urlsafe_b64encode)):
        for offset in range(3):
            core = _core(altered(b"\0" * offset + content).decode(), offset, len(content))
            pattern = _BREAK.join(_escaped(sign) for sign in core)
            found.append(Form(re.compile(pattern), _part(core), "unbroken", whole=True))
    digits = content.hex()
    found.append(Form(re.compile(digits, re.IGNORECASE), digits, "lower"))
    return tuple({form.pattern.pattern: form for form in found}.values())


def _core(encoded: str, offset: int, length: int) -> str:
    """Return the signs of base64 that depend on the secret alone, not on what is beside it."""
    first = (0, 2, 3)[offset]
    bits = 8 * (offset + length)
    return encoded[first : bits // 6]


def _part(value: str) -> str:
    """Return the longest run of letters and digits: no escape changes those."""
    return max(re.findall("[A-Za-z0-9]+", value), key=len, default="")


def _escaped(value: str) -> str:
    """Return an expression for a text in which any sign may be escaped."""
    parts: list[str] = []
    slashes = 0
    for sign in value:
        if sign == "\\":
            slashes += 1
            continue
        parts.append(_slashes(slashes) + _sign(sign, escapes=not slashes))
        slashes = 0
    return "".join(parts) + _slashes(slashes)


def _slashes(count: int) -> str:
    """Return an expression for backslashes: each may be doubled, or be %5C and the like."""
    if not count:
        return ""
    return rf"(?:(?i:%(?:25)*5C|\\+(?:x5C|u005C|134)|&\#0*92;|&\#x0*5C;)|\\){{{count},}}"


def _sign(sign: str, escapes: bool) -> str:
    """Return an expression for one sign; ``escapes`` says whether backslashes may precede it."""
    if re.fullmatch("[A-Za-z0-9]", sign):
        return sign
    code = ord(sign)
    before = r"\\*" if escapes else ""
    content = sign.encode("utf-8", "surrogatepass")
    ways = [before + re.escape(sign), *_QUOTES.get(sign, ())]
    ways.append("".join(f"%(?:25)*(?i:{byte:02x})" for byte in content))
    ways.append("".join(rf"\\+x(?i:{byte:02x})" for byte in content))
    ways.append("".join(rf"\\+{byte:03o}" for byte in content))
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    ways.append("".join(rf"\\+u(?i:{units[n : n + 4]})" for n in range(0, len(units), 4)))
    ways.append(rf"\\+U(?i:{code:08x})")
    if code < 256:
        ways.append(rf"\\+x(?i:{code:02x})")  # YAML's and Python's are of the sign, not of a byte
    if code in _LETTERS:
        ways.append(rf"\\+{_LETTERS[code]}")
    ways += [rf"&(?:amp;)*\#0*{code};", rf"&(?:amp;)*\#[xX]0*(?i:{code:x});"]
    if sign in _NAMED:
        ways.append(f"&(?:amp;)*{_NAMED[sign]};")
    elif code > 127 and html.escape(sign) == sign and code in html.entities.codepoint2name:
        ways.append(f"&(?:amp;)*{html.entities.codepoint2name[code]};")
    return f"(?:{'|'.join(dict.fromkeys(ways))})"
