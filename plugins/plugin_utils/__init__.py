# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs on the controller; everything of ours there is refused in words where it can't run.

This is read before any other module, so it takes what a controller of ten years ago has.
"""

from __future__ import annotations

import sys

from ansible.release import __version__

# As in meta/runtime.yml and pyproject.toml.
ANSIBLE = (2, 19)
PYTHON = (3, 11)


def refuse_older(ansible: str, python: tuple[int, ...]) -> None:
    """Raise AnsibleError where ansible-core or its Python is too old, with what to do."""
    core = tuple(int(part) for part in ansible.split(".")[:2])
    if core >= ANSIBLE and python >= PYTHON:
        return
    from ansible.errors import AnsibleError

    running = f"ansible-core {ansible} with Python {python[0]}.{python[1]}"
    needed = "ansible-core {}.{} and Python {}.{} or later".format(*ANSIBLE, *PYTHON)
    raise AnsibleError(
        f"apiary.instinct needs {needed} on the controller; this is {running}. Hosts need only "
        "Python 3.9. Beside an older one, Apiary runs in a virtual environment of its own or in "
        "its execution environment: docs/how-to/run-beside-an-older-ansible.md"
    )


refuse_older(__version__, sys.version_info[:2])
