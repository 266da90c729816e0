# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/variables.md: the inventory's own variables, and where those of roles are."""

from __future__ import annotations

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from role_pages import roles
from text import code, table

HEAD = """# Variables of an inventory

What playbooks read beside the variables of the roles. `playbooks/validate.yml` checks all of them
on every host before one is touched, and names each that nothing reads. A deployment's own fields:
`apiary schema deployment`.
"""


def page() -> str:
    """Return the page."""
    known = knowledge("variables.yml")["variables"]
    lines = [HEAD, "## Of the inventory\n"]
    rows = ((code(name), one["type"], one["meaning"]) for name, one in sorted(known.items()))
    lines += table(("variable", "type", "meaning"), rows)
    lines += ["## Of the roles\n"]
    for path in roles():
        spec = yaml.safe_load((path / "meta/argument_specs.yml").read_text(encoding="utf-8"))
        main = spec["argument_specs"]["main"]
        lines.append(f"### [{path.name}](../../roles/{path.name}/README.md)\n")
        lines.append(f"{main['short_description']}.\n")
        names = ", ".join(code(name) for name in main["options"])
        lines.append(f"{names}\n")
    return "\n".join(lines)
