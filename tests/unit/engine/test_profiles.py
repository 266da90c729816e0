# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Profiles: published limits where the deployment leaves them open."""

import itertools

from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import (
    names,
    steps,
    with_profile,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import versions
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known

from support.each import each
from support.engines import QWEN, deployment

# arXiv:2603.10031, table 6.
PUBLISHED = {
    "low-latency": (256, 8192, 1),
    "balanced": (512, 16384, 10),
    "throughput": (1024, 32768, 15),
    "maximum": (2048, 65536, 15),
}


def test_the_profiles_are_the_published_ones():
    assert names() == tuple(PUBLISHED)
    for name, (seqs, tokens, scheduler_steps) in PUBLISHED.items():
        limits = with_profile(deployment(profile=name)).limits
        assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (seqs, tokens)
        assert steps(name) == scheduler_steps


def test_without_a_profile_nothing_is_filled_in():
    assert with_profile(deployment()) == deployment()
    assert steps(None) == 0


def test_what_the_deployment_says_stands():
    limits = with_profile(deployment(profile="maximum", max_num_seqs=8)).limits
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (8, 65536)


@each(itertools.product(versions(), PUBLISHED))
def test_every_version_takes_every_profile_and_scheduler_steps_are_left_out(version, profile):
    made = recipe(known(QWEN), deployment(version=version, profile=profile, ep=True), "MI325X", 1)
    argv = made.argv
    seqs, tokens, scheduler_steps = PUBLISHED[profile]
    assert argv[argv.index("--max-num-seqs") + 1] == str(seqs)
    assert argv[argv.index("--max-num-batched-tokens") + 1] == str(tokens)
    assert "--num-scheduler-steps" not in argv
    noted = [item for item in made.findings if item.code == "ENGINE-PROFILE"]
    assert bool(noted) == (scheduler_steps > 1)
    beyond = [item for item in made.findings if item.code == "ENGINE-GRAPH-BATCH"]
    assert bool(beyond) == (seqs > 512)
