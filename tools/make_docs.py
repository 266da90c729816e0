#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/reference/ from the code, so that no page can disagree with it.

make_docs.py [--check]      with --check only say which pages are stale
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "docs"))

import advisories_page
import command_page
import finding_pages
import gpus_page
import memory_page
import playbook_page
import plugin_page
import releases_page
import role_pages
import rules_page
import schema_pages
import telemetry_page
import tuning_page
import upstream_page
import variables_page

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference"
NOTE = "<!-- Written by tools/make_docs.py; change the code, then run `make docs`. -->\n\n"


def pages() -> dict[Path, str]:
    """Return every generated page."""
    made = {
        REFERENCE / "advisories.md": advisories_page.page(),
        REFERENCE / "commands.md": command_page.page(),
        REFERENCE / "findings.md": finding_pages.whole(),
        REFERENCE / "gpus.md": gpus_page.page(),
        REFERENCE / "memory.md": memory_page.page(),
        REFERENCE / "modules.md": plugin_page.page(),
        REFERENCE / "playbooks.md": playbook_page.page(),
        REFERENCE / "rules.md": rules_page.page(),
        REFERENCE / "schemas.md": schema_pages.whole(),
        REFERENCE / "telemetry.md": telemetry_page.page(),
        REFERENCE / "tuning.md": tuning_page.page(),
        REFERENCE / "upstream-recipes.md": upstream_page.page(),
        REFERENCE / "variables.md": variables_page.page(),
        REFERENCE / "vllm-releases.md": releases_page.page(),
    }
    for path in role_pages.roles():
        made[path / "README.md"] = role_pages.role(path)
    return {path: NOTE + text.rstrip("\n") + "\n" for path, text in made.items()}


def main() -> int:
    """Write the pages, or say which are stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    made = pages()
    stale = [
        path
        for path, text in made.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
