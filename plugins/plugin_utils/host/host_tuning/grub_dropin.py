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
from pathlib import Path

from ...documents import knowledge
from . import cmdline

_WORDS = "@words@\n"  # the line that ours take the place of


def render(ours: Sequence[str], excludes: Sequence[str]) -> str:
    """Return the drop-in's text for our words, those that contradict them, and list arguments."""
    exclude = ["{}={}".format(*cmdline.parts(word)) for word in excludes]
    lists = knowledge("host/tuning.yml")["list_arguments"]["names"]
    words = {"lists": lists, "excluded": exclude, "ours": ours}
    settings = "".join(
        f"  apiary_{name}={shlex.quote(' '.join(each))} \\\n" for name, each in words.items()
    )
    text = Path(__file__).with_suffix(".cfg").read_text(encoding="utf-8")
    return text.replace(_WORDS, settings)
