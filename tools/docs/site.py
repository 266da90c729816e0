#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the documentation as a web site that needs no network, in site/.

site.py [--strict] [--pages] [--stage DIR]
    --strict    a broken link or anchor is an error
    --pages     only write what it is built from, into .docs/ or DIR
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import finding_pages
import role_pages
import schema_pages
import yaml
from rewriting import mentions, site_page

from apiary.help.finding_command import catalogue

ROOT = Path(__file__).parents[2]
# Files of the repository that are pages of the site, beside docs/.
OTHERS = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
# Where links lead that mean one page in the repository, and another or several in the site.
MOVED = {
    "README.md": "index.md",
    "docs/decisions": "decisions/0001-layout.md",
    "docs/how-to": "how-to/set-up-an-inventory.md",
    "docs/reference": "reference/commands.md",
    "docs/reference/findings.md": "reference/findings/index.md",
    "docs/reference/schemas.md": "reference/schemas/index.md",
    "roles": "reference/variables.md",
}


def pages() -> dict[str, str]:
    """Return every page and schema of the site by its path there."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "docs").rglob("*.md"))
    }
    texts |= {name: (ROOT / name).read_text(encoding="utf-8") for name in OTHERS}
    readmes = {path: role_pages.role(path) for path in role_pages.roles()}
    texts |= {f"roles/{path.name}/README.md": text for path, text in readmes.items()}
    targets = {name: _target(name) for name in texts if name not in MOVED}
    generated = _generated({targets[name]: texts[name] for name in targets})
    # What a link may lead to: pages, files beside them, and pages of another name.
    places = {**targets, **{f"docs/{name}": name for name in generated}, **MOVED}
    for path in (ROOT / "docs").rglob("*"):
        if path.is_file() and path.suffix != ".md":
            places[path.relative_to(ROOT).as_posix()] = path.relative_to(ROOT / "docs").as_posix()
    codes = {code: f"reference/findings/{code}.md" for code in catalogue()}

    def page(text: str, source: str, target: str) -> str:
        return site_page(text, source, target, places, codes, lambda name: (ROOT / name).exists())

    made = {target: page(texts[name], name, target) for name, target in targets.items()}
    for name, text in generated.items():
        made[name] = page(text, f"docs/{name}", name) if name.endswith(".md") else text
    return made


def _target(name: str) -> str:
    if name.startswith("roles/"):
        return f"roles/{name.split('/')[1]}.md"
    return OTHERS.get(name, name.removeprefix("docs/"))


def _generated(written: dict[str, str]) -> dict[str, str]:
    """Return the pages that are in no repository."""
    spoken = {
        name: text for name, text in written.items() if name.startswith(("how-to/", "explanation/"))
    }
    found = finding_pages.pages(mentions(spoken, catalogue()), _titles(written))
    made = {f"reference/findings/{name}": text for name, text in found.items()}
    return made | {f"reference/schemas/{name}": text for name, text in schema_pages.pages().items()}


def _titles(written: dict[str, str]) -> dict[str, str]:
    """Return the first heading of each page."""
    found = {name: re.search(r"^# (.+)$", text, re.MULTILINE) for name, text in written.items()}
    return {name: title[1] for name, title in found.items() if title}


def configuration(made: dict[str, str]) -> dict[str, Any]:
    """Return mkdocs.yml with its navigation spelt out; raise ValueError for a page in no place."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = set(_named(config["nav"]))
    # Hundreds of codes are found by the index, by search and by links.
    found = {name for name in made if name.endswith(".md")}
    free = {name for name in found - named if not name.startswith("reference/findings/")}
    missing = sorted(name for name in named - found if "*" not in name)
    if missing:
        raise ValueError(f"mkdocs.yml names pages that there are not: {', '.join(missing)}")
    config["nav"] = list(_spelt_out(config["nav"], free))
    if free:
        raise ValueError(f"mkdocs.yml has no place for {', '.join(sorted(free))}")
    return config


def _named(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else _named(value)


def _spelt_out(nav: list[Any], free: set[str]) -> Iterator[Any]:
    """Yield a navigation with the pages that its patterns stand for, taking them from ``free``."""
    for entry in nav:
        if isinstance(entry, dict):
            for title, value in entry.items():
                value = value if isinstance(value, str) else list(_spelt_out(value, free))
                if value:
                    yield {title: value}
        elif "*" in entry:
            found = sorted(name for name in free if fnmatch.fnmatch(name, entry))
            free.difference_update(found)
            # A role's title would repeat the collection's name.
            yield from ({Path(one).stem: one} if one.startswith("roles/") else one for one in found)
        else:
            yield entry


def stage(directory: Path) -> None:
    """Write everything that the site is built from into a directory, which is emptied first."""
    made = pages()
    config = configuration(made)
    shutil.rmtree(directory, ignore_errors=True)
    for name, text in made.items():
        path = directory / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for folder in ("assets", "images"):
        shutil.copytree(ROOT / "docs" / folder, directory / "pages" / folder)
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    (directory / "mkdocs.yml").write_text(text, encoding="utf-8")


def main() -> int:
    """Build the site; return the builder's exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--pages", action="store_true")
    parser.add_argument("--builder", default=str(Path(sys.executable).with_name("zensical")))
    parser.add_argument("--stage", type=Path, default=ROOT / ".docs")
    arguments = parser.parse_args()
    try:
        stage(arguments.stage)
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    if arguments.pages:
        return 0
    argv = [arguments.builder, "build", "--config-file", "mkdocs.yml"]
    argv += ["--strict"] if arguments.strict else []
    done = subprocess.run(argv, cwd=arguments.stage, check=False)
    if done.returncode == 0:
        shutil.rmtree(ROOT / "site", ignore_errors=True)
        shutil.move(arguments.stage / "site", ROOT / "site")
        print(f"site: {ROOT / 'site/index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
