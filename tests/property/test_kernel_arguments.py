# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel command line has algebra: merging twice is merging once, and it can be undone."""

import subprocess
from collections import Counter

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.host_tuning import cmdline
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples

# A loaded machine is no failure.
SHELL = examples(0.6)
OURS = [
    "iommu=pt",
    "pci=realloc=off",
    "pci=bfsort",
    "numa_balancing=disable",
    "nokaslr",
    "modprobe.blacklist=amdgpu",
]
EXCLUDES = ["iommu=off", "amd_iommu=off", "pci=nobfsort"]
THEIRS = [
    *OURS,
    *EXCLUDES,
    "pci=noats",
    "pci=noats,realloc=on,nobfsort",
    "pci=realloc",
    "pci",
    "iommu=off,noagp",
    "amd_iommu=off,pgtbl_v2",
    "amd_iommu=fullflush",
    "numa-balancing=enable",
    "modprobe.blacklist=nouveau,ast",
    "quiet",
    "console=tty1",
    "console=ttyS0,115200n8",
    'dyndbg="file  a.c +p"',
    '"odd=one two"',
    "$literal",
    "back\\slash",
]
words = st.lists(st.sampled_from(THEIRS), max_size=8)
ends = st.sampled_from([(), ("--", "single", "pci=noats")])
ours = st.lists(st.sampled_from(OURS), unique=True)
lines = st.tuples(words, ends).map(lambda told: (*told[0], *told[1]))


def pieces(line):
    kernel, rest = cmdline.kernel_words(line)
    return Counter(piece for word in kernel for piece in cmdline.pieces(word)), rest


def kept(line, mine):
    """What of others has to survive: everything that neither decides nor contradicts ours."""
    against = cmdline.contradictions(line, mine, EXCLUDES)
    found, _rest = pieces(line)
    return {
        piece
        for piece in found
        if piece not in against and not any(cmdline.parts(piece) == cmdline.parts(o) for o in mine)
    }


@given(st.lists(st.sampled_from(THEIRS)))
def test_words_are_read_as_they_were_written(line):
    assert list(cmdline.split("  ".join(line))) == line


@given(st.text(alphabet='ab=," \t-'))
def test_reading_loses_nothing_but_blanks(text):
    read = cmdline.split(text)
    assert "".join(read) == "".join(read_by_hand(text))
    assert cmdline.split(" ".join(read)) == read


def read_by_hand(text):
    """The letters that are no blanks, or are within quotes."""
    quoted = False
    for letter in text:
        quoted ^= letter == '"'
        if quoted or letter not in " \t":
            yield letter


@given(lines, ours)
def test_ours_are_in_effect(line, mine):
    after = cmdline.merged(line, mine, EXCLUDES)
    assert all(cmdline.has(after, one) for one in mine)
    assert cmdline.contradictions(after, mine, EXCLUDES) == ()


@given(lines, ours)
def test_what_others_set_stays(line, mine):
    after, rest = pieces(cmdline.merged(line, mine, EXCLUDES))
    assert kept(line, mine) <= set(after)
    assert rest == pieces(line)[1]


@given(lines, ours)
def test_nothing_else_appears(line, mine):
    after, _rest = pieces(cmdline.merged(line, mine, EXCLUDES))
    assert set(after) <= set(pieces(line)[0]) | set(mine)


@given(lines, ours)
def test_a_second_merge_changes_nothing(line, mine):
    once = cmdline.merged(line, mine, EXCLUDES)
    assert cmdline.merged(once, mine, EXCLUDES) == once


@given(lines, ours)
def test_a6_each_of_ours_is_a_word_of_its_own_and_there_once(line, mine):
    after = pieces_of(cmdline.merged(line, mine, EXCLUDES))
    assert all(after.count(one) == 1 for one in mine)
    assert all(pieces((*after,))[0][one] == 1 for one in mine)


def pieces_of(line):
    return cmdline.kernel_words(line)[0]


def decided(line):
    """What the kernel makes of a line: the last of each thing, lists by option, flags once."""
    found = {}
    for word in pieces_of(line):
        for piece in cmdline.pieces(word):
            name, value = cmdline.parts(piece)
            key = (name, cmdline.option_name(value or "") if cmdline.is_list(name) else None)
            found[key] = value
    return found


@given(lines, ours)
def test_the_undo_gives_back_what_the_kernel_was_told(line, mine):
    record = cmdline.recorded(line, mine, EXCLUDES)
    after = cmdline.undone(cmdline.merged(line, mine, EXCLUDES), record)
    assert decided(after) == decided(line)


@given(lines, ours, ours)
def test_other_settings_later_leave_no_trace_of_earlier_ones(line, before, now):
    first = cmdline.merged(line, before, EXCLUDES)
    base = cmdline.undone(first, cmdline.recorded(line, before, EXCLUDES))
    assert decided(cmdline.merged(base, now, EXCLUDES)) == decided(
        cmdline.merged(line, now, EXCLUDES)
    )


def sourced(first, second, dropin):
    """What the shell has in GRUB's two variables after the drop-in."""
    script = (
        'set -eu\nGRUB_CMDLINE_LINUX=$1\nGRUB_CMDLINE_LINUX_DEFAULT=$2\n. "$3"\n'
        'printf "%s\\n%s" "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"'
    )
    done = subprocess.run(
        ["sh", "-c", script, "sh", " ".join(first), " ".join(second), dropin],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")


@pytest.fixture(scope="module")
def dropin(tmp_path_factory):
    return tmp_path_factory.mktemp("grub") / "zz-apiary.cfg"


def merged_pair(first, second, ours, excludes):
    """Return two parts of one command line, ours in the first: GRUB keeps it in two variables."""
    return cmdline.merged(first, ours, excludes), cmdline.without(second, ours, excludes)


@SHELL
@given(first=lines, second=lines, mine=ours)
def test_the_shell_merges_as_python_does(dropin, first, second, mine):
    dropin.write_text(cmdline.grub_dropin(mine, EXCLUDES))
    expected = merged_pair(first, second, mine, EXCLUDES)
    assert sourced(first, second, dropin) == [" ".join(part) for part in expected]
