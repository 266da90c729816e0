# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Applied
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.plan import behind, causes
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Change

from support.surveys import changing, digest, served, settled

CHANGE = Change("/etc/a", "1\n", "2\n")
AT = "2026-11-21T09:00:00Z"
CHAT = "replicas:chat"


def noted(concern, asked="", plan=""):
    """The ledger of a host with one concern."""
    return {concern: Applied(concern, AT, "run-1", asked and digest(asked), plan and digest(plan))}


def host(running="1", wanted="1", concern=CHAT, **more):
    survey = changing(settled(), concern, CHANGE, **more)
    return replace(
        survey, running=(served(running, 2),) if running else (), wanted=(served(wanted),)
    )


def test_what_is_settled_has_no_cause():
    assert causes(settled(), {}) == {}


@pytest.mark.parametrize(
    ("survey", "ledger", "cause"),
    [
        # nobody noted anything: what runs is what was applied
        (host(running="", concern="rocm"), {}, "to apply"),
        (host(running=""), {}, "to apply"),
        (host("1", "2"), {}, "to apply"),
        (host("1", "1"), {}, "drift"),
        (host(concern="rocm"), {}, "unknown"),
        # the ledger has the concern
        (host("1", "1"), noted(CHAT, CHAT, "1"), "drift"),
        (host("1", "2", asked=digest("new")), noted(CHAT, CHAT, "1"), "to apply"),
        (host("1", "2"), noted(CHAT, CHAT, "1"), "drift"),  # the host changed its own plan
        (host("3", "2", asked=digest("new")), noted(CHAT, CHAT, "1"), "drift"),
        (host("", "1"), noted(CHAT, CHAT, "1"), "drift"),  # somebody removed it
        (host("1", "2", asked=""), noted(CHAT, CHAT, "1"), "unknown"),
        (host(concern="rocm"), noted("rocm", "rocm"), "drift"),
        (host(concern="rocm", asked=digest("new")), noted("rocm", "rocm"), "to apply"),
        (host(concern="rocm", asked=""), noted("rocm", "rocm"), "unknown"),
        (host(concern="rocm"), noted("rocm"), "unknown"),
        # the ledger has others, so this one is new
        (host(concern="rocm"), noted("host_tuning", "x"), "to apply"),
    ],
)
def test_cause(survey, ledger, cause):
    assert list(causes(survey, ledger).values()) == [cause]


def test_the_ledger_is_behind_where_another_run_applied_what_is_asked():
    assert behind(settled(), noted(CHAT, CHAT, "gpu-0001 0.33.0")) == ()
    assert behind(settled(), noted(CHAT, CHAT, "older")) == ("chat",)
    assert behind(settled(), noted("rocm", "rocm")) == ()
    assert behind(host("1", "2"), noted(CHAT, CHAT, "older")) == ()
