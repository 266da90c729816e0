# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the AMD GPUs of `lspci`, plain or with -D, -nn, -n, -k, -v, -P or -PP (pciutils)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...gpus import model_of
from ..observation import Device, Observation
from .text import bus_address, hexadecimal

NAME = "lspci"
_ROW = re.compile(
    r"^((?:[0-9a-f:]{2,13}\.[0-7]/)*[0-9a-f:]{2,13}\.[0-7])"  # a path of functions, or one
    r" (?:([A-Z][\w ./-]*?)(?: \[([0-9a-f]{4})\])?|([0-9a-f]{4})): (\S.*)$",
    re.MULTILINE,
)
_AMD = re.compile(r"Advanced Micro Devices|AMD/ATI|\[1002:|^1002:")
# As pci.ids names classes 12xx and 03xx; the bridges and audio functions of a card are AMD's too.
_GPU_CLASSES = re.compile(r"Processing accelerators|(?:Display|VGA compatible|3D) controller")
_IDS = re.compile(r"(?:\[|^)1002:([0-9a-f]{4})\b|\bDevice ([0-9a-f]{4})\b")
# What the capture's own prompt line asked for: every row of the answer has that id.
_ASKED = re.compile(r"\blspci\b.{0,200} -d ?(?:0x)?1002:([0-9a-fA-F]{4})\b")


def recognise(text: str) -> bool:
    """Say whether text (clean) was printed by lspci."""
    return bool(_ROW.search(text))


def parse(texts: Iterable[str], subject: str) -> Observation:
    """Return the AMD GPUs on the bus.

    The id is that which lspci prints or was asked for; a name is none. Path elements without a
    bus number (-P) identify nothing.
    """
    devices: list[Device] = []
    for text in texts:
        command = _ASKED.search(text)
        for path, name, in_brackets, bare, rest in _ROW.findall(text):
            if not _AMD.search(rest) or not _is_gpu(name, in_brackets or bare):
                continue
            *above, own = path.split("/")
            ids = _IDS.search(rest)
            device = command.group(1) if command else ids and (ids.group(1) or ids.group(2))
            device_id = hexadecimal(device, 4)
            bridges = tuple(filter(None, map(bus_address, above)))
            devices.append(
                Device(
                    bdf=bus_address(own),
                    device_id=device_id,
                    virtual_function=model_of(device_id)[1],
                    pci_path=bridges if bridges and len(bridges) == len(above) else None,
                )
            )
    absence = None if devices else "lspci lists no AMD GPU"
    return Observation(NAME, tuple(devices), absence=absence)


def _is_gpu(name: str, class_id: str) -> bool:
    return bool(_GPU_CLASSES.fullmatch(name)) or class_id.startswith(("12", "03"))
