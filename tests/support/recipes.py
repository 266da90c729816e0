# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recipes as the tests of the engine's rules ask for them, and what they read in them."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known

from support.compact import compact


def make(asked, gpu="MI325X", port=8000):
    return recipe(known(asked.model.name), asked, gpu, port)


def flags_of(made):
    """The flags of a recipe with their values; a boolean one has None."""
    result, name = {}, None
    for part in made.argv[2:]:
        if part.startswith("--"):
            name = part
            result[name] = None
        else:
            result[name] = part
    return result


def refusal(asked, gpu="MI325X"):
    with pytest.raises(ApiaryError) as caught:
        make(asked, gpu)
    return errors(caught.value.findings)


def errors(findings):
    return [finding.code for finding in findings if finding.severity == "error"]


def said(made):
    """The findings that are more than a note."""
    return [finding for finding in made.findings if finding.severity != "info"]


def recorded(made):
    """Return a recipe for its golden file: rules by name, whose words are those of the rules."""
    document = json.loads(dumps(made))
    document["reasons"] = [f"{one['element']}: {one['rule']}" for one in document["reasons"]]
    document["attention_reason"] = (document["attention_reason"] or {}).get("rule")
    for finding in document["findings"]:
        del finding["remedy"], finding["source"]
    return compact(json.dumps(document))
