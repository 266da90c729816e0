# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pages of the repository as pages of the site: other places, other list rules, codes as links."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping

_FENCE = re.compile(r"^\s*(```+|~~~+)")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_ITEM = re.compile(r"^(\s*)(?:[-*+]|\d+\.) ")
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_PLAIN_CODE = re.compile(r"`([A-Z]+(?:-[A-Z0-9]+)+)`")


def site_page(
    text: str,
    source: str,
    target: str,
    places: Mapping[str, str],
    codes: Mapping[str, str],
    there: Callable[[str], bool],
) -> str:
    """Return a page of the repository as it stands in the site.

    ``source`` is its path in the repository, ``target`` the one in the site; ``places`` has the
    page of the site for each file of the repository, ``codes`` the page of each finding;
    ``there`` says whether the repository has a file.
    """
    text = outside_code(text, lambda part: _COMMENT.sub("", part))
    text = outside_code(text, lambda part: _with_codes(part, target, codes))
    text = outside_code(text, lambda part: _with_links(part, source, target, places, there))
    return "\n".join(_with_lists(text.split("\n")))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return a page with what is in no code block changed."""
    done, part, fence = list[str](), list[str](), ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if not fence and found:
            done += [change("\n".join(part)), line] if part else [line]
            part, fence = [], found[1]
        elif fence:
            done.append(line)
            fence = "" if found and found[1].startswith(fence) else fence
        else:
            part.append(line)
    return "\n".join([*done, change("\n".join(part))] if part else done)


def _with_codes(text: str, target: str, codes: Mapping[str, str]) -> str:
    """Link every code of a finding that is no heading and in no link yet."""

    def link(found: re.Match[str]) -> str:
        page = codes.get(found[1])
        before = text[: found.start()].rsplit("\n", 1)[-1]
        taken = page is None or page == target or before.startswith("#")
        linked = before.endswith("[") or text[found.end() : found.end() + 2] == "]("
        return found[0] if taken or linked else f"[{found[0]}]({_relative(str(page), target)})"

    return _PLAIN_CODE.sub(link, text)


def _with_links(
    text: str,
    source: str,
    target: str,
    places: Mapping[str, str],
    there: Callable[[str], bool],
) -> str:
    """Lead links to where their pages are in the site; a file that is no page loses its link.

    A link that leads nowhere stays, for the builder to refuse.
    """

    def moved(found: re.Match[str]) -> str:
        picture, words, address = found.groups()
        path, hash_, anchor = address.partition("#")
        if re.match(r"[a-z]+:", address) or not path:
            return found[0]
        # Codes were linked before, within the site; those need no other place.
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(target), path))
        repository = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if repository in places:
            return f"{picture}[{words}]({_relative(places[repository], target)}{hash_}{anchor})"
        if inside in places.values() or not there(repository):
            return found[0]
        return f"{words} (`{repository}`)" if repository not in words else words

    return _LINK.sub(moved, text)


def _relative(page: str, target: str) -> str:
    return posixpath.relpath(page, posixpath.dirname(target) or ".")


def _with_lists(lines: list[str]) -> Iterator[str]:
    """Yield lines with an empty one before each list and table, and items' parts indented by four.

    Python-Markdown wants both; elsewhere, as on forges, neither is needed.
    """
    before, listed, width, fence = "", False, 0, False
    for line in lines:
        item = _ITEM.match(line)
        if _FENCE.match(line):
            fence = not fence
        if not fence and item and not item[1]:
            if before.strip() and not listed:
                yield ""
            listed, width = True, len(item[0])
        elif listed and line.strip() and not line.startswith(" "):
            # A line that goes on a paragraph may begin at the margin.
            listed = bool(before.strip()) and not line.startswith(("#", "|", "```"))
        elif listed and line.startswith(" " * width) and width < 4:
            line = " " * (4 - width) + line
        if not fence and line.startswith("|"):
            if before.strip() and not before.startswith("|"):
                yield ""
            # Within code a bar parts no cells there, and a backslash would be shown.
            line = re.sub(r"`[^`]*`", lambda found: found[0].replace("\\|", "|"), line)
        yield line
        before = line


def mentions(pages: Mapping[str, str], codes: Collection[str]) -> dict[str, list[str]]:
    """Return the pages that speak of each code, in alphabetical order."""
    found: dict[str, list[str]] = {}
    for name, text in sorted(pages.items()):
        for code in set(re.findall(r"\b[A-Z]+(?:-[A-Z0-9]+)+\b", text)) & set(codes):
            found.setdefault(code, []).append(name)
    return found
