# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of the tree that no linter knows."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.program import packaged

ROOT = Path(__file__).parents[2]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
COLLECTION = ROOT / "collections/ansible_collections/apiary/instinct"
KNOWLEDGE = ROOT / "plugins/plugin_utils/knowledge"
AREAS = (
    "ACCEPT|BENCH|BUNDLE|CAPACITY|CONTAINER|DEPLOY|DOC|DOCTOR|ENGINE|EXPLAIN|FILE|FIT|FLEET|HOST"
    "|INVENTORY|KUBE|LAB|LAYOUT|MODEL|MONITORING|PLACE|PLAN|PREFLIGHT|PROBE|QUALITY|RELEASE|REBOOT|REPLICA"
    "|REPORT|ROCM|ROLLOUT|ROUTER|TELEMETRY|TOPO|TRACE|TRIAL|TUNE|WEIGHTS"
)
# ROCM-SMI is what rocm-smi calls itself.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CODE = re.compile(rf"\b((?!ROCM-SMI\b)(?:{AREAS})(?:-[A-Z0-9]+)+)\b")


@cache
def catalogue():
    """Every documented finding code with its entry."""
    entries = {}
    for path in sorted((KNOWLEDGE / "findings").glob("*.yml")):
        entries |= yaml.load(path.read_text(), Loader=LOADER)  # noqa: S506 - a safe loader
    return entries


@cache
def codes_in_use():
    """Every finding code that code or rules can print."""
    places = [
        *(ROOT / "plugins").rglob("*.py"),
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "tests/lab").rglob("*.py"),
        *(ROOT / "playbooks").rglob("*.yml"),
        *(ROOT / "roles").rglob("*.yml"),
    ]
    codes = {code for path in places for code in CODE.findall(path.read_text(encoding="utf-8"))}
    tables = (
        "bench/*.yml",
        "doctor.yml",
        "host/**/*.yml",
        "vllm/rules/*.yml",
        "vllm/advisories.yml",
    )
    facts = [path for table in tables for path in KNOWLEDGE.glob(table)]
    rules = [path.read_text(encoding="utf-8") for path in facts]
    return codes | {code for text in rules for code in re.findall(r"code: ([A-Z0-9-]+)", text)}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_argument_spec_repeats_the_defaults(role):
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())
    options = specs["argument_specs"]["main"]["options"]
    assert {
        name: option["default"] for name, option in options.items() if "default" in option
    } == defaults


@pytest.mark.parametrize("name", ["galaxy.yml", "meta", "playbooks", "plugins", "roles"])
def test_collection_links_lead_home(name):
    assert (COLLECTION / name).resolve() == ROOT / name


def test_every_finding_code_is_documented():
    assert codes_in_use() - set(catalogue()) == set()


def test_every_documented_code_is_in_use():
    assert set(catalogue()) - codes_in_use() == set()


def test_a_documented_finding_says_what_and_what_to_do():
    incomplete = [
        code
        for code, entry in catalogue().items()
        if entry["severity"] not in ("error", "warning", "info")
        or not (entry["meaning"] and entry["remedy"])
    ]
    assert incomplete == []


def tracked_files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_registry_host_is_named():
    # Written apart, so that this file does not name one either.
    hosts = [
        "pypi" + ".org",
        "pythonhosted" + ".org",
        "deb.debian" + ".org",
        "archive.ubuntu" + ".com",
    ]
    named = [
        f"{path}: {host}"
        for path in tracked_files()
        if path.is_file() and not path.is_symlink()
        for host in hosts
        if host.encode() in path.read_bytes()
    ]
    assert named == []


RENDER = "plugins/plugin_utils/render"


@pytest.mark.parametrize(
    ("folder", "more"),
    [
        ("plugins/module_utils", {"ansible", "ansible_collections"}),
        ("plugins/modules", {"ansible", "ansible_collections"}),
        (f"{RENDER}/host", set()),
        # The collection alone works with what ansible-core brings.
        ("plugins", {"ansible", "ansible_collections", "cryptography", "jinja2", "yaml"}),
    ],
)
def test_what_runs_needs_only_what_is_there(folder, more):
    found = list((ROOT / folder).rglob("*.py"))
    # A replica's package has the reader of KFD beside it.
    text = packaged if folder.endswith("render/host") else Path.read_text
    foreign = {
        f"{path}: {name}"
        for path in found
        for name in set(imports(text(path))) - set(sys.stdlib_module_names) - more
    }
    assert found
    assert not foreign


def imports(text):
    """The top-level packages that a file imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level > 1:
            yield "ansible_collections"  # of another folder; one dot is the file's own
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_the_arrow_never_turns_back():
    """A package imports only what stands to its left; pyproject.toml has the order."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_generated_pages_are_current():
    done = subprocess.run(
        [sys.executable, "tools/make_docs.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_role_is_shown_by_the_play_that_its_scenario_converges():
    shown = sorted((ROOT / "extensions/molecule").glob("*/example.yml"))
    assert shown
    for example in shown:
        converge = yaml.safe_load((example.parent / "converge.yml").read_text())
        imported = [play.get("ansible.builtin.import_playbook") for play in converge]
        assert "example.yml" in imported, example
        play = example.read_text().removeprefix("---\n").rstrip("\n")
        assert play in (ROOT / "roles" / example.parent.name / "README.md").read_text(), example


SHUFFLING = re.compile(r"\|\s*(?:difference|intersect|symmetric_difference|union)\(")


def test_no_list_that_is_used_is_shuffled():
    """Ansible's filters of sets return another order in each run; a length has none."""
    files = [path for name in ("playbooks", "roles") for path in (ROOT / name).rglob("*.yml")]
    shuffled = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if SHUFFLING.search(line) and "| length" not in line
    ]
    assert not shuffled
