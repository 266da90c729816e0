# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of a CDI specification as a JSON Schema, written from its text.

Source: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

_LABEL = "[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?"
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_WORDS = {"type": "array", "items": {"type": "string"}}
_UINT32 = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
_PATH = {"type": "string", "pattern": "^/"}


def _object(required, **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_NODE = _object(
    ["path"],
    path=_PATH,
    hostPath=_PATH,
    type={"enum": ["b", "c", "u", "p"]},
    major={"type": "integer"},
    minor={"type": "integer"},
    fileMode=_UINT32,
    permissions={"type": "string", "pattern": "^[rwm]+$"},
    uid=_UINT32,
    gid=_UINT32,
)
_MOUNT = _object(
    ["hostPath", "containerPath"], hostPath=_PATH, containerPath=_PATH, type={}, options=_WORDS
)
_HOOK = _object(
    ["hookName", "path"],
    hookName={"type": "string"},
    path=_PATH,
    args=_WORDS,
    env=_WORDS,
    timeout={},
)
_EDITS = _object(
    [],
    env={"type": "array", "items": {"type": "string", "pattern": "^[^=]+=.*$"}},
    deviceNodes={"type": "array", "items": _NODE},
    netDevices={"type": "array"},
    mounts={"type": "array", "items": _MOUNT},
    hooks={"type": "array", "items": _HOOK},
    intelRdt={"type": "object"},
    additionalGids={"type": "array", "items": _UINT32},
)
_DEVICE = _object(
    ["name", "containerEdits"],
    name={"type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"},
    annotations=_STRINGS,
    containerEdits={**_EDITS, "minProperties": 1},
)
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(
        ["cdiVersion", "kind", "devices"],
        cdiVersion={
            "enum": ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"]
        },
        kind={
            "type": "string",
            "pattern": f"^[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/{_LABEL}$",
        },
        annotations=_STRINGS,
        devices={"type": "array", "items": _DEVICE, "minItems": 1},
        containerEdits=_EDITS,
    ),
}
