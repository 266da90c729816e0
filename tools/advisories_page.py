# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/advisories.md: every known defect, with what its source proves and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.advisories import (
    Advisory,
    advisories,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import pins_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import versions
from rules_page import table

HEAD = """# Known defects

What is known to go wrong with vLLM, AITER and ROCm on AMD Instinct GPUs, from public threads:
{count} advisories. A plan sets the element that keeps a defect away where there is one (*avoided*),
warns otherwise, and refuses what is proven to answer wrongly; `force` in a deployment may name an
advisory to accept that. `apiary explain DEPLOYMENT --recipe FILE` finds them in a command of your
own, and `apiary advise --engine 0.33.0 --gpu MI325X` lists those of a release
([before an upgrade](../how-to/upgrade-vllm.md)).

*Proof* is what the source proves: reported (by one party), reproduced, fixed (the cause was found
and mended) or measured. Most threads were read as far as they are stored (*excerpts*); where only
a reviewer's row was, it says *row*. Releases are those that the thread names or that follow from
where the fix is; nothing here says that other releases are free of a defect.
"""


def page() -> str:
    """Return the whole page."""
    lines = [HEAD.format(count=len(advisories()))]
    for symptom, entry in knowledge("vllm/advisories.yml")["symptoms"].items():
        those = [each for each in advisories() if each.symptom == symptom]
        title: str = entry["is"]
        lines += [f"## {title[0].upper()}{title[1:]}\n"]
        columns = ("advisory", "vLLM", "when", "what happens", "what to do", "proof", "source")
        lines += table(columns, map(_row, those))
    lines += ["## What upstream's images have\n"]
    images = knowledge("vllm/images.yml")
    names = " and ".join(f"`{name}`" for name in images["repositories"])
    lines += [
        f"Of {names}, by release. Another image's or wheel's are what `engine.aiter` and"
        " `engine.rocm` of the deployment say; an advisory that hangs on what is unknown is told"
        " with an *if*.\n"
    ]
    rows = (
        (version, pins["rocm"], pins.get("aiter", "-"))
        for version in versions()
        if (pins := pins_of(version))
    )
    lines += table(("vLLM", "ROCm", "AITER"), rows)
    lines += [f"Source: {images['source']}.\n"]
    return "\n".join(lines)


def _row(item: Advisory) -> Iterator[str]:
    yield f"`{item.id}`"
    yield str(item.versions)
    yield item.when.words()
    yield item.says
    yield f"{item.remedy}{' (*avoided*)' if item.avoid else ''}"
    yield f"{item.proof}{', ' + item.fixed if item.fixed else ''} ({item.read})"
    yield item.source
