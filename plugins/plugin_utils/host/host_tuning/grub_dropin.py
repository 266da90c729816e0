# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file in /etc/default/grub.d: shell that joins our words with whatever was set before it.

It merges when grub-mkconfig sources it, as `cmdline.merged` does, so that what the operator,
the cloud image or a package sets in the same variables later is kept, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from . import cmdline

_AWK = r"""
function bare(text) { gsub(/^"+|"+$/, "", text); return text }
function name_of(word,   name) {
  name = bare(word); sub(/=.*/, "", name); gsub(/-/, "_", name); return name
}
function value_of(word,   at) {
  word = bare(word); at = index(word, "="); return at ? bare(substr(word, at + 1)) : ""
}
# What a piece decides: the name, of a list argument name and option.
function decides(name, value) {
  if (!(name in listed)) return name
  sub(/=.*/, "", value); return name "=" value
}
function excluded(name, value) { return ((name "=" value) in exclude) }
function ours_decide(name, value) { return (decides(name, value) in own) }
function learn(text, into,   words, count, i) {
  count = split(text, words, " ")
  for (i = 1; i <= count; i++) into[words[i]] = 1
}
# The word without the pieces that we decide or exclude; nothing where none is left.
function foreign(word,   name, value, options, count, i, left, gone) {
  name = name_of(word); value = value_of(word)
  if (!(name in listed)) return (excluded(name, value) || ours_decide(name, value)) ? "" : word
  count = split(value, options, ",")
  for (i = 1; i <= count; i++) {
    if (options[i] == "") continue
    if (excluded(name, options[i]) || ours_decide(name, options[i])) { gone = 1; continue }
    left = left (left == "" ? "" : ",") options[i]
  }
  if (name in chosen) { join(name, left); return "" }
  return gone ? (left == "" ? "" : name "=" left) : word
}
function join(name, options,   each, count, i) {
  count = split(options, each, ",")
  for (i = 1; i <= count; i++) {
    if ((name, each[i]) in seen) continue
    seen[name, each[i]] = 1
    chosen[name] = chosen[name] (chosen[name] == "" ? "" : ",") each[i]
  }
}
function emit(word) { if (word != "") { printf "%s%s", gap, word; gap = " " } }
BEGIN {
  line = ENVIRON["apiary_line"]; mode = ENVIRON["apiary_mode"]
  learn(ENVIRON["apiary_lists"], listed); learn(ENVIRON["apiary_excluded"], exclude)
  total = split(ENVIRON["apiary_ours"], ours, " ")
  for (i = 1; i <= total; i++) {
    name = name_of(ours[i]); own[decides(name, value_of(ours[i]))] = 1
    if (name in listed && !(name in chosen)) { chosen[name] = ""; order[++lists] = name }
  }
  for (i = 1; i <= length(line); i++) {
    letter = substr(line, i, 1)
    if (letter == "\"") quoted = !quoted
    if (quoted || letter !~ /[ \t\n]/) { word = word letter; continue }
    if (word != "") all[++count] = word
    word = ""
  }
  if (word != "") all[++count] = word
  # After -- everything belongs to init.
  for (end = 1; end <= count && all[end] != "--"; end++) { }
  for (i = 1; i < end; i++) {
    if (mode == "moved") { if (name_of(all[i]) in chosen) emit(all[i]) }
    else emit(foreign(all[i]))
  }
  if (mode == "merged") {
    count_moved = split(ENVIRON["apiary_moved"], moved, " ")
    for (i = 1; i <= count_moved; i++) emit(foreign(moved[i]))
    for (i = 1; i <= total; i++) {
      if (name_of(ours[i]) in chosen) join(name_of(ours[i]), value_of(ours[i]))
      else emit(ours[i])
    }
    for (i = 1; i <= lists; i++) emit(order[i] "=" chosen[order[i]])
  }
  if (mode != "moved") for (i = end; i <= count; i++) emit(all[i])
}
"""

_HEAD = """\
# Written by Apiary (host_tuning); change its variables instead.
# Joins the words below with what was set before, and takes away what contradicts them.
apiary_arguments() {
  apiary_mode=$1 apiary_line=$2 apiary_moved=${3-} \\
"""
_TAIL = """\
apiary_second=${GRUB_CMDLINE_LINUX_DEFAULT-}
GRUB_CMDLINE_LINUX=$(apiary_arguments merged "${GRUB_CMDLINE_LINUX-}" \\
  "$(apiary_arguments moved "$apiary_second")")
GRUB_CMDLINE_LINUX_DEFAULT=$(apiary_arguments rest "$apiary_second")
unset apiary_second
"""


def render(ours: Sequence[str], excludes: Sequence[str], lists: Sequence[str]) -> str:
    """Return the drop-in's text for our words, those that contradict them, and list arguments."""
    exclude = ["{}={}".format(*cmdline.parts(word)) for word in excludes]
    words = {"lists": lists, "excluded": exclude, "ours": ours}
    settings = "".join(
        f"  apiary_{name}={shlex.quote(' '.join(each))} \\\n" for name, each in words.items()
    )
    return f"{_HEAD}{settings}  awk '{_AWK.strip()}'\n}}\n{_TAIL}"
