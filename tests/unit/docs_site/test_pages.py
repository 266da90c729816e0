# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the documentation site is built from: every page has a place, every link leads somewhere."""

import importlib.util
import json
import posixpath
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge

from apiary.help.finding_command import catalogue

ROOT = Path(__file__).parents[3]
FENCED = re.compile(r"^\s*```.*?^\s*```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")


def load(name):
    path = ROOT / f"tools/docs/{name}.py"
    spec = importlib.util.spec_from_file_location(f"docs_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rewriting = load("rewriting")


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """The site's pages by path, and its configuration."""
    directory = tmp_path_factory.mktemp("docs")
    argv = [sys.executable, "tools/docs/site.py", "--pages", "--stage", directory]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def pages_of(directory):
    base = directory / "pages"
    return {path.relative_to(base).as_posix(): path for path in base.rglob("*") if path.is_file()}


def test_every_link_leads_to_a_page_or_file(staged):
    found = pages_of(staged)
    broken = []
    for name, path in found.items():
        if path.suffix != ".md":
            continue
        text = FENCED.sub("", path.read_text(encoding="utf-8"))
        for address in LINK.findall(re.sub(r"`[^`]*`", "", text)):
            target = address.split("#")[0]
            if target and not re.match(r"[a-z]+:", target):
                led = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
                broken += [] if led in found else [f"{name}: {address}"]
    assert broken == []


def test_every_code_has_a_page_with_meaning_evidence_and_remedy(staged):
    for code, entry in catalogue().items():
        text = (staged / f"pages/reference/findings/{code}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {code}\n\n**{entry.severity}**")
        for title in ("Meaning", "Evidence", "Remedy", "See also"):
            assert f"\n## {title}\n" in text


def test_every_page_but_those_of_codes_is_in_the_navigation_once(staged):
    def named(nav):
        for entry in nav:
            for value in entry.values() if isinstance(entry, dict) else [entry]:
                yield from [value] if isinstance(value, str) else named(value)

    config = yaml.safe_load((staged / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = list(named(config["nav"]))
    pages = {name for name in pages_of(staged) if name.endswith(".md")}
    codes = {f"reference/findings/{code}.md" for code in catalogue()}
    assert sorted(listed) == sorted(pages - codes)


def test_comments_of_tests_are_not_shown(staged):
    for name, path in pages_of(staged).items():
        if path.suffix == ".md":
            text = FENCED.sub("", path.read_text(encoding="utf-8"))
            assert "<!-- test:" not in text, name


def test_schemas_are_files_that_a_program_can_use(staged):
    files = sorted((staged / "pages/reference/schemas").glob("*.schema.json"))
    assert files
    for path in files:
        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))


def made(text, source="docs/how-to/a.md", target="how-to/a.md"):
    places = {"docs/how-to/b.md": "how-to/b.md", "roles/x/README.md": "roles/x.md"}
    places["docs/reference/findings/TOPO-CSV.md"] = "reference/findings/TOPO-CSV.md"
    codes = {"TOPO-CSV": "reference/findings/TOPO-CSV.md"}
    return rewriting.site_page(text, source, target, places, codes, lambda name: "lab" in name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[b](b.md#part)", "[b](b.md#part)"),
        ("[x](../../roles/x/README.md)", "[x](../roles/x.md)"),
        ("[lab](../../tests/lab/README.md)", "lab (`tests/lab/README.md`)"),
        ("[gone](gone.md)", "[gone](gone.md)"),
        ("[out](https://example.org/a)", "[out](https://example.org/a)"),
        ("see `TOPO-CSV`", "see [`TOPO-CSV`](../reference/findings/TOPO-CSV.md)"),
        ("# `TOPO-CSV`", "# `TOPO-CSV`"),
        ("[`TOPO-CSV`](b.md)", "[`TOPO-CSV`](b.md)"),
        ("`TOPO-NONE`", "`TOPO-NONE`"),
        ("```text\n`TOPO-CSV` <!-- kept -->\n```", "```text\n`TOPO-CSV` <!-- kept -->\n```"),
        ("<!-- test: skip -->\na", "a"),
        ("so:\n- one\n- two", "so:\n\n- one\n- two"),
        ("1. one\n   more\n2. two", "1. one\n    more\n2. two"),
        ("so:\n| a |\n|---|", "so:\n\n| a |\n|---|"),
        (r"| `a \| b` \| c |", r"| `a | b` \| c |"),
    ],
)
def test_a_page_of_the_repository_becomes_one_of_the_site(text, shown):
    assert made(text) == shown


def test_pages_that_speak_of_a_code_are_found():
    pages = {"b.md": "x `TOPO-CSV`", "a.md": "TOPO-CSV: y", "c.md": "TOPO-CSVS"}
    assert rewriting.mentions(pages, {"TOPO-CSV"}) == {"TOPO-CSV": ["a.md", "b.md"]}


def test_the_drivers_of_an_images_rocm_are_those_that_are_checked():
    page = (ROOT / "docs/how-to/run-in-containers.md").read_text(encoding="utf-8")
    support = knowledge("host/rocm/support.yml")
    for series, entry in support["series"].items():
        assert f"| {series} | {', '.join(entry['drivers'])} |\n" in page
    said = re.findall(r"(6\.1\d\.\d+) is (?:driver )?([0-9.]+\d)", page)
    assert said
    assert {driver: support["drivers"][driver]["module"] for _, driver in said} == {
        driver: module for module, driver in said
    }


def test_a_part_of_a_page_that_another_names_is_there(staged):
    """In guides and explanations; a title's words are joined by dashes."""
    kinds = ("explanation/", "how-to/")
    found = {name: path for name, path in pages_of(staged).items() if name.startswith(kinds)}
    missing = []
    for name, path in found.items():
        text = FENCED.sub("", path.read_text(encoding="utf-8"))
        for address in LINK.findall(re.sub(r"`[^`]*`", "", text)):
            target, _, part = address.partition("#")
            led = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            led = led if target else name
            if part and led in found:
                titles = re.findall(r"^#+ (.+)$", found[led].read_text(encoding="utf-8"), re.M)
                parts = {
                    re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles
                }
                missing += [] if part in parts else [f"{name}: {address}"]
    assert missing == []
