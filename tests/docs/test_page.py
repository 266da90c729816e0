# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading pages; no lab."""

import pytest

from docs.page import Drop, Hands, Merge, PageError, Run, edit, merged, missing, steps
from loss.fleet import ROOT

PAGE = """# A page

<!-- test: merge inventory/mine/hosts.yml -->
```yaml
rack2:
  hosts:
    gpu-002:
```

```console
$ one a \\
    b
says … this
and that
$ two
```

<!-- test: skip nobody can -->
```bash
rm -rf /
```

<!-- test: hands off gpu-002 -->
<!-- test: drop hosts.yml rack2.hosts.gpu-002 -->
<!-- test: fails -->
```bash
false
```

```text
not run
```
"""


def test_a_page_is_read_in_order():
    assert steps(PAGE) == (
        Merge(4, "inventory/mine/hosts.yml", {"rack2": {"hosts": {"gpu-002": None}}}),
        Run(11, "one a \\\n    b", ("says … this", "and that")),
        Run(15, "two"),
        Hands(23, ("off", "gpu-002")),
        Drop(24, "hosts.yml", ("rack2", "hosts", "gpu-002")),
        Run(26, "false\n", fails=True),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<!-- test: marge a.yml -->\n", "line 1: test: marge"),
        ("\n```console\nno prompt\n```\n", "line 3: a console block begins with a command"),
        ("<!-- test: fails -->\n```text\nx\n```\n", "nothing is run here"),
    ],
)
def test_a_page_that_cannot_be_followed_says_where(text, why):
    with pytest.raises(PageError, match=why):
        steps(text)


def test_each_line_comes_and_dots_stand_for_anything():
    said = "first\n  gpu-001 :  ok=3   failed=0 \nlast\n"
    assert missing(("last", "gpu-001…failed=0"), said) is None
    assert missing(("first", "first"), said) == "first"
    assert missing(("gpu-001…failed=1",), said) == "gpu-001…failed=1"


def test_a_file_is_edited_where_the_page_says(tmp_path):
    assert merged({"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}}) == {"a": {"b": 1, "c": [2]}}
    edit(tmp_path, Merge(1, "d/x.yml", {"a": {"b": None, "c": 1}}))
    edit(tmp_path, Drop(2, "d/x.yml", ("a", "b")))
    assert (tmp_path / "d/x.yml").read_text() == "a:\n  c: 1\n"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_every_page_can_be_read(page):
    text = page.read_text(encoding="utf-8")
    if "<!-- test:" in text:
        assert steps(text)
