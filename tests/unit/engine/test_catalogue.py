# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""That rules and checks of the engine mean what the catalogue says of their codes."""

from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.values import checks
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import explanation


def test_a_rule_has_the_severity_of_its_code():
    for rule in rules():
        if rule.severity:
            assert explanation(rule.effect["code"])["severity"] == rule.severity, rule.id


def test_what_a_check_finds_is_an_error():
    for check in checks():
        assert explanation(check.code)["severity"] == "error", check.id
