# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each role stands alone: a screen of tasks, an example that is run, no variable of another."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
SCENARIOS = ROOT / "extensions/molecule"
SCREEN = 45
NAME = re.compile(r"\b[a-z_][a-z0-9_]*\b")


def options(role):
    specs = yaml.safe_load((ROOT / f"roles/{role}/meta/argument_specs.yml").read_text())
    return set(specs["argument_specs"]["main"]["options"])


OWNERS = {name: role for role in ROLES for name in options(role)}
# Of the inventory, for every role: a page says what they are.
SHARED = set(
    re.findall(r"^\| `(apiary_\w+)` \|", (ROOT / "docs/reference/variables.md").read_text(), re.M)
)


def foreign(role, text):
    """Return the names of a text that belong to other roles, or to nobody."""
    code = "\n".join(line.partition(" # ")[0] for line in text.splitlines() if line[:1] != "#")
    # Taken where the inventory has it, and not needed.
    code = re.sub(r"\b\w+ \| default\(", "", code)
    for name in set(NAME.findall(code)):
        owner = OWNERS.get(name)
        registered = next((other for other in ROLES if name.startswith(f"__{other}_")), role)
        undocumented = name.startswith("apiary_") and name not in SHARED
        if owner not in (None, role) or registered != role or undocumented:
            yield name


@pytest.mark.parametrize("role", ROLES)
def test_a_role_stands_alone_and_fits_a_screen(role):
    folder = ROOT / "roles" / role
    for path in sorted(folder.glob("tasks/*.yml")):
        assert len(path.read_text().splitlines()) <= SCREEN, path
    used = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(folder.rglob("*.yml"))
        if path.parent.name in ("tasks", "defaults", "vars")
        for name in foreign(role, path.read_text())
    }
    assert used == set()


@pytest.mark.parametrize("role", ROLES)
def test_a_role_s_readme_has_what_its_user_needs(role):
    text = (ROOT / "roles" / role / "README.md").read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["What it changes", "Example", "Tags"]
    assert all(f"| `{name}` |" in text for name in options(role))
    assert f"`{role}`" in text.rpartition("## Tags")[2]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_s_example_runs_that_role_alone(role):
    (play,) = yaml.safe_load((SCENARIOS / role / "example.yml").read_text())
    assert [each["role"] for each in play["roles"]] == [f"apiary.instinct.{role}"]
    settings = {**play.get("vars", {}), **play["roles"][0].get("vars", {})}
    assert set(settings) <= options(role)


def test_a_variable_of_another_role_is_noticed():
    assert set(
        foreign("rocm", "a: {{ host_tuning_state }}\nb: {{ rocm_state }} # router_state")
    ) == {"host_tuning_state"}
    assert set(foreign("rocm", "register: __router_x\nb: {{ apiary_unknown }}")) == {
        "__router_x",
        "apiary_unknown",
    }
