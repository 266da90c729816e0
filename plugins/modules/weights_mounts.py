#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mount what a host's plan says, and see that it holds."""

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_mounts
short_description: Mount what a host's plan says, and see that it holds
version_added: 0.1.0
description:
  - Takes the steps that M(apiary.instinct.decide) decided for the concern V(weight_cache). The
    units must have been written before.
  - A mount point is closed before anything is mounted there (mode 0000, and immutable where its
    file system has that), so that without its mount it never looks like an empty model store.
  - Entries of C(/etc/fstab) and automounts that hold a mount point are taken out; what was there is
    kept below C(/var/lib/apiary/originals).
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed.
    support: full
    details: The steps are told; files' texts are not, for others' mounts may hold passwords.
options:
  mounts:
    description: The steps, in order.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Where it is mounted.
        type: path
        required: true
      unit:
        description: Its mount unit.
        type: str
        required: true
      action:
        description:
          - What to do. V(keep) only sees that the unit is enabled and the readahead is right.
        type: str
        choices: [keep, mount, remount, unmount]
        required: true
      reasons:
        description: Why it does not stay as it is.
        type: list
        elements: str
        default: []
      readahead_kib:
        description: Readahead in KiB; without it the kernel's own stays.
        type: int
      readahead_found:
        description: What the readahead was when the step was decided; not used.
        type: int
      automounts:
        description: Automount units that hold the place.
        type: list
        elements: str
        default: []
      fstab:
        description: Whether C(/etc/fstab) holds the place.
        type: bool
        default: false
  timeout_seconds:
    description:
      - How long each mount may take. The unit goes on trying after that, and the module fails.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Mount the weights
  apiary.instinct.weights_mounts:
    mounts: "{{ decided.plan.mounts }}"
"""

RETURN = r"""
steps:
  description: What was, or in check mode would be, done, a line each.
  type: list
  elements: str
  returned: success
  sample: ["mount /srv/models", "enable srv-models.mount"]
hidden:
  description: Mount points that held files of their own, which a mount now hides.
  type: list
  elements: str
  returned: success
  sample: []
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import host_files
from ..module_utils.replicas.units import FileChange, read_file
from ..module_utils.weights import mount_points, readahead
from ..module_utils.weights.mount_looks import ARGUMENTS, look, state, systemctl

FSTAB = "/etc/fstab"
POLL_SECONDS = 0.2


def refuse(module: AnsibleModule, code: str, subject: str, message: str, remedy: str) -> None:
    """End with a finding."""
    module.fail_json(msg=f"error: {code}: {subject}: {message}\n  remedy: {remedy}")


def replace_text(module: AnsibleModule, path: str, text: str | None) -> None:
    """Rewrite or remove a file, and keep what it held before."""
    before, mode = read_file(path)
    if before is not None and before != text:
        host_files.apply(module, [FileChange(path, before, text, mode, text and mode)], keep=True)


def release(module: AnsibleModule, steps: list[dict]) -> None:
    """Take mount points out of /etc/fstab, and automounts away."""
    text, _mode = read_file(FSTAB)
    for step in steps:
        if step["fstab"] and text is not None:
            text = mount_points.without(text, step["path"])
        for name in step["automounts"]:
            systemctl(module, "stop", "--", name)
            forget(name)
            replace_text(module, os.path.join(mount_points.UNITS, name), None)
    replace_text(module, FSTAB, text)


def forget(unit: str) -> None:
    """Remove the links that start a unit at boot; systemctl wants its file, which may be gone."""
    for link in mount_points.wanted_by(unit, mount_points.UNITS):
        os.unlink(link)


def unmount(module: AnsibleModule, step: dict) -> None:
    """Unmount all that lies at a mount point; fail where it is in use."""
    path = step["path"]
    code, said = systemctl(module, "stop", "--", step["unit"])
    while mount_points.mounts_at(path):
        code, _out, said = module.run_command(["umount", path])
        if code:
            refuse(
                module,
                "WEIGHTS-BUSY",
                path,
                f"cannot be unmounted: {said.strip()}",
                f"see who uses it (fuser -vm {path}), end that and run again",
            )


def mount(module: AnsibleModule, step: dict, timeout: int) -> None:
    """Mount by the unit, and wait until it is; the unit itself goes on trying."""
    path, unit = step["path"], step["unit"]
    systemctl(module, "reset-failed", "--", unit)
    systemctl(module, "start", "--no-block", "--", unit)
    deadline = time.monotonic() + timeout
    while True:
        known = state(module, unit)
        if known.get("ActiveState") == "active" and mount_points.mounts_at(path):
            return
        if known.get("ActiveState") == "failed" or time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    _code, out, _err = module.run_command(
        ["journalctl", "--no-pager", "--output=cat", "--lines=5", f"--unit={unit}"]
    )
    failed = known.get("ActiveState") == "failed"
    problem = "cannot be mounted" if failed else f"is not mounted after {timeout} s"
    said = [line.strip() for line in out.splitlines()]
    refuse(
        module,
        "WEIGHTS-MOUNT",
        path,
        f"{problem}: {' / '.join(said)}",
        "see whether the server answers and exports it to this host; where it has an older NFS, "
        "say so: options: {vers: '4.1'}",
    )


def needing(module: AnsibleModule, unit: str) -> list[str]:
    """Return the units that run and need a mount: they stop with it, and nobody starts them."""
    _code, out = systemctl(module, "show", "--property=RequiredBy", "--value", "--", unit)
    names = out.split()
    running = ("active", "activating", "reloading")
    return [name for name in names if state(module, name).get("ActiveState") in running]


def take(module: AnsibleModule, step: dict, timeout: int) -> bool:
    """Take one step; return whether the mount point held files of its own."""
    path, hidden = step["path"], False
    stopped = needing(module, step["unit"]) if step["action"] == "remount" else []
    if step["action"] in ("remount", "unmount"):
        unmount(module, step)
    if step["action"] == "unmount":
        forget(step["unit"])
        mount_points.reopen(path)
        return False
    # First: a server that does not answer now may do so after the next boot.
    systemctl(module, "enable", "--", step["unit"])
    if step["action"] != "keep":
        hidden = mount_points.close(path)
        mount(module, step, timeout)
    if stopped:
        systemctl(module, "start", "--no-block", "--", *stopped)
    if step["readahead_kib"] is not None:
        device = readahead.device_of(path)
        try:
            readahead.set_readahead(str(device), step["readahead_kib"])
        except OSError as failure:
            refuse(
                module,
                "WEIGHTS-READAHEAD",
                path,
                f"cannot be set to {step['readahead_kib']} KiB: {failure.strerror}",
                "set readahead_kib of this mount to 0: its file system has none",
            )
    return hidden


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    steps = module.params["mounts"]
    told, outcome = look(module)
    if module.check_mode or not outcome["steps"]:
        module.exit_json(**outcome)
    release(module, steps)
    systemctl(module, "daemon-reload")
    for step, each in zip(steps, told):
        if each and take(module, step, module.params["timeout_seconds"]):
            outcome["hidden"].append(step["path"])
    for path in outcome["hidden"]:
        module.warn(
            f"WEIGHTS-HIDDEN: {path} held files of its own, which the mount hides\n"
            "  remedy: unmount it once and see whether they can go"
        )
    systemctl(module, "daemon-reload")
    module.exit_json(**outcome)


if __name__ == "__main__":
    main()
