# SPDX-License-Identifier: GPL-3.0-or-later

"""Read an inventory and Ansible's settings: one request as JSON on stdin, one answer on stdout.

Ansible puts its collection finder before Python's own, reads its settings once a process and prints
warnings where it likes, so it gets a process of its own. Needs ansible-core and the standard
library, nothing of Apiary.

A request has ``sources``, ``limit`` and ``extra`` (values of -e), and one part or more of:

- ``hosts``: ``patterns`` (none: every host), names of ``variables``, and ``connection``, whether to
  resolve what a host is connected by. The answer has ``hosts``, ``selected``, the names that
  each pattern matches (None: no such host, whatever the limit), ``matched``, how many it does
  without the limit, ``total``, how many there are, ``beside``, the members of routers and
  monitoring, and ``localhost``, whether the inventory itself has it.
- ``secrets``: the names of ``variables`` that are secrets, the expressions ``secret`` and
  ``innocent`` that other names are matched by, and ``vaulted``, encrypted files. The answer has
  ``secrets``, the values; only the command that started this reads them, from a pipe.
- ``ansible``: ``collections`` and ``vaulted``. The answer has ``ansible``, doctor's AnsibleFacts.

The answer's ``error`` says why there is no other.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from apiary.app.ansible_reader.inventory import Inventory
from apiary.app.ansible_reader.settings import Secrets, settings


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of one request."""
    result: dict[str, Any] = {"error": None}
    if "ansible" in request:
        result["ansible"] = settings(request["ansible"])
    if "hosts" not in request and "secrets" not in request:
        return result
    from ansible.errors import AnsibleError

    try:
        inventory = Inventory(request)
        if "secrets" in request:
            secrets = Secrets(request["secrets"], inventory.passwords)
            result["secrets"] = sorted(set(secrets.of_inventory(inventory)))
        if "hosts" in request:
            result |= inventory.hosts(request["hosts"], request.get("limit"))
    except AnsibleError as failure:
        text, place = " ".join(str(failure).split()), _place(failure)
        return {"error": f"{text} ({place})" if place else text}
    return result


def _place(failure: BaseException | None) -> str:
    """Return FILE:LINE:COLUMN of a failure, which its text leaves out; the one for a file of
    variables is behind another that does not have it."""
    while failure is not None:
        context = str(getattr(failure, "_formatted_source_context", None) or "")
        if context.startswith("Origin: "):
            return context.partition("\n")[0].removeprefix("Origin: ")
        failure = failure.__cause__ or failure.__context__
    return ""


def main() -> None:
    """Answer the one request; whatever Ansible prints goes to stderr."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        json.dump(answer(request), out)


if __name__ == "__main__":
    main()
