# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An action takes the options that its page documents, which must offer all that its code has."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import TESTS
from ansible_collections.apiary.instinct.plugins.plugin_utils.adapters import documented
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.deciding import warm
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import CONCERNS
from ansible_collections.apiary.instinct.plugins.plugin_utils.role_plans import ROLES
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.events import EVENTS


@pytest.mark.parametrize(
    ("action", "option", "names"),
    [
        ("decide", "role", {*CONCERNS, *ROLES, "replicas"}),
        ("rollout", "event", {*EVENTS, "inspect", "order", "room", "lost", "quality"}),
        ("acceptance", "concerns", {*CONCERNS} - {"reboot"}),
        ("acceptance", "tests", {*TESTS}),
        ("survey", "concerns", {*warm()}),
    ],
)
def test_the_documented_choices_are_those_of_the_code(action, option, names):
    assert set(documented(action)[option]["choices"]) == names
