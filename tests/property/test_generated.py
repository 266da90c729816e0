# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random hosts, printed as every tool and version prints them, are read as they are, or refused.

APIARY_SEED makes the hosts and damages of a run that failed again.
"""

import os
import random
import sys
from collections import Counter

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read

from tests.support.printers import verdict
from tests.support.printers.damage import DAMAGES, PREFIXES, STRAY, append, interleave
from tests.support.printers.formats import FORMATS

# In CI the same each time; what is found at night gets its fixed case in test_generated_cases.py.
CI_SEED = 20261127
CHARACTERS = 1_000_000
TWO_HOSTS = (append, interleave)


def night_seed():
    seed = int(os.environ.get("APIARY_SEED", 0)) or random.SystemRandom().randrange(2**32)
    print(f"APIARY_SEED={seed}")
    return seed


def attempt(text):
    """The topology, or None where it is refused by a finding."""
    try:
        return read(text, "host.txt")
    except ApiaryError:  # it cannot be made without a finding
        return None


def read_back(form, seed):
    """What is wrong with the reading of one random host, with the seed that makes it again."""
    machine = form.host(random.Random(f"{seed} {form.name}"))
    topology = read(form.show(machine), "host.txt")
    errors = [str(finding) for finding in topology.findings if finding.severity == "error"]
    wrong = verdict.wrong(machine, form, topology)
    lacking = [f"{fact} is not read" for fact in verdict.lacking(machine, form, topology)]
    return [f"{form.name}, seed {seed}: {problem}" for problem in (*errors, *wrong, *lacking)]


def damaged(form, seed, outcomes):
    """Damage one random host's output; return how many characters, and what is read wrongly."""
    rng = random.Random(f"{seed} {form.name}")
    machine, other = form.host(rng), form.host(rng)
    # Addresses of two hosts may happen to ascend in a list that has nothing else.
    damage = rng.choice([d for d in DAMAGES if d not in TWO_HOSTS or "lspci" not in form.name])
    result = damage(rng, form.show(machine), form.show(other))
    topology = attempt(result.text)
    outcomes["refused" if topology is None or verdict.refused(topology) else "read"] += 1
    wrong = (
        []
        if topology is None
        else verdict.wrong(machine, form, topology, result.lines, result.text)
    )
    where = f"{form.name}, {damage.__name__}, seed {seed}"
    return result.characters, [f"{where}: {problem}" for problem in wrong]


def damage_until(characters, seed):
    """Damage outputs of all forms until so many characters are; no reading may be wrong."""
    outcomes, done, wrong = Counter(), 0, []
    while done < characters and len(wrong) < 20:
        for form in FORMATS:
            count, problems = damaged(form, seed, outcomes)
            done += count
            wrong += problems
        seed += 1
    print(f"{outcomes.total()} outputs with {done} damaged characters: {dict(outcomes)}")
    assert wrong == []
    assert min(outcomes["read"], outcomes["refused"]) > outcomes.total() // 5


def test_a_host_that_a_tool_printed_is_read_as_it_is():
    assert [problem for form in FORMATS for problem in read_back(form, CI_SEED)] == []


def test_a_million_damaged_characters_make_no_other_host():
    damage_until(CHARACTERS, CI_SEED)


@pytest.mark.night
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_many_hosts_are_read_as_they_are(form):
    first = night_seed()
    assert [problem for seed in range(200) for problem in read_back(form, first + seed)] == []


@pytest.mark.night
def test_twenty_million_damaged_characters_make_no_other_host():
    damage_until(20 * CHARACTERS, night_seed())


def test_what_launchers_put_before_lines_changes_no_host():
    outcomes = Counter()
    for number, form in enumerate(FORMATS):
        name, prefix = PREFIXES[number % len(PREFIXES)]
        machine = form.host(random.Random(f"{name} {form.name}"))
        lines = form.show(machine).rstrip("\n").split("\n")
        topology = attempt("".join(f"{prefix(n)}{line}\n" for n, line in enumerate(lines)))
        if topology is None or verdict.refused(topology):
            outcomes["refused"] += 1
            continue
        assert verdict.wrong(machine, form, topology) == []
        outcomes["lacking" if list(verdict.lacking(machine, form, topology)) else "read"] += 1
    # Of a prefix that is none of a known launcher's (the last one) most is refused.
    assert outcomes["read"] >= 48
    assert outcomes["lacking"] == 0


def steps(text):
    """The calls that a reading makes: what each expression does is test_patterns.py's."""
    calls = Counter()
    sys.setprofile(lambda _frame, event, _argument: calls.update([event]))
    try:
        attempt(text)
    finally:
        sys.setprofile(None)
    return calls.total()


@pytest.mark.parametrize("form", FORMATS[::20], ids=lambda form: form.name)
def test_a_reading_takes_steps_by_the_length_of_the_text(form):
    lines = form.show(form.host(random.Random(CI_SEED))).split("\n")[:40]
    lines = [line[:200] for line in lines]
    texts = [
        "\n".join(f"{lines[n % len(lines)]}\n{STRAY[n % len(STRAY)]}" for n in range(count))
        for count in (150, 600)
    ]
    few, many = map(steps, texts)
    assert many < 6 * few
