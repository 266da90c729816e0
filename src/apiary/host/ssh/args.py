# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments of `ssh` in an inventory, as lines of ssh_config that stand before all others."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from apiary.host.ssh.config import UNSUPPORTED, Line, keyword, option_line, refusal

# ssh(1): the options that take a value, and what of them are lines of ssh_config.
VALUED = "BbcDEeFIiJLlmOopQRSWw"
AS_LINE = {
    "b": "BindAddress {}",
    "i": 'IdentityFile "{}"',
    "J": "ProxyJump {}",
    "l": "User {}",
    "p": "Port {}",
}
FAMILY = {"4": "AddressFamily inet", "6": "AddressFamily inet6"}
# They change nothing for one command whose output is read: terminals, multiplexing, forwarding.
HARMLESS = set("aACfKkMnqSTtVvXxYyEe")


@dataclass(frozen=True)
class SshArguments:
    """What arguments say: lines of ssh_config, another file for it, and what is not honoured."""

    lines: tuple[Line, ...] = ()
    config: str | None = None
    ignored: tuple[str, ...] = ()


def read_arguments(text: str, place: str) -> SshArguments:
    """Read arguments as a shell and ssh(1) do; raise PROBE-CONFIG for what neither would take."""
    lines: list[Line] = []
    ignored: list[str] = []
    keywords = knowledge("ssh.yml")
    config = None
    for letter, value in _options(text, place):
        if letter == "o":
            key = keyword(value)
            if not key:
                raise _wrong(place, text, f"-o {value} lacks its value")
            if key in keywords["honoured"] or key in UNSUPPORTED:  # refused where it matters
                lines.append(option_line(value, place))
            elif key not in keywords["harmless"]:
                ignored.append(f"-o {value}")
        elif letter in AS_LINE:
            lines.append(option_line(AS_LINE[letter].format(value), place))
        elif letter in FAMILY:
            lines.append(option_line(FAMILY[letter], place))
        elif letter == "F":
            config = value
        elif letter not in HARMLESS:
            ignored.append(f"-{letter} {value}".strip())
    return SshArguments(tuple(lines), config, tuple(ignored))


def _options(text: str, place: str) -> Iterator[tuple[str, str]]:
    """Yield each option's letter with its value, "" for a flag."""
    try:
        words = iter(shlex.split(text))
    except ValueError as failure:
        raise _wrong(place, text, str(failure)) from failure
    for word in words:
        if not word.startswith("-") or word == "-":
            raise _wrong(place, text, f"{word!r} is no option of ssh")
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter not in VALUED:
                yield letter, ""
                continue
            value = letters or next(words, None)
            if value is None:
                raise _wrong(place, text, f"-{letter} lacks its value")
            yield letter, value
            break


def _wrong(place: str, text: str, why: str) -> ApiaryError:
    return refusal(place, f"{text}: {why}")
