# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random hosts, printed as every tool and version prints them, are read as they are."""

import random

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read

from tests.support.printers import verdict
from tests.support.printers.formats import FORMATS

HOSTS = 3


def read_back(form, seed):
    """What is wrong with the reading of one random host, with the seed that makes it again."""
    machine = form.host(random.Random(f"{seed} {form.name}"))
    topology = read(form.show(machine), "host.txt")
    errors = [str(finding) for finding in topology.findings if finding.severity == "error"]
    wrong = verdict.wrong(machine, form, topology)
    lacking = [f"{fact} is not read" for fact in verdict.lacking(machine, form, topology)]
    return [f"{form.name}, seed {seed}: {problem}" for problem in (*errors, *wrong, *lacking)]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_host_that_a_tool_printed_is_read_as_it_is(form):
    assert [problem for seed in range(HOSTS) for problem in read_back(form, seed)] == []


@pytest.mark.night
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_many_hosts_are_read_as_they_are(form):
    first = random.SystemRandom().randrange(2**32)
    print(f"seeds from {first}")
    assert [problem for seed in range(200) for problem in read_back(form, first + seed)] == []
