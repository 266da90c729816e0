# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading pages; no lab."""

import json
import re

import pytest
import yaml

from docs.page import (
    Drop,
    File,
    Hands,
    Merge,
    PageError,
    Run,
    Skip,
    edit,
    merged,
    missing,
    steps,
)
from docs.pages import DOCS, FOLLOWED, how_to

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

<!-- test: skip gpu: only they can -->
```bash
rm -rf /
```

<!-- test: given cp a b -->
<!-- test: hands off gpu-002 -->
<!-- test: drop hosts.yml rack2.hosts.gpu-002 -->
<!-- test: fails -->
```bash
false
```

```text
not run
```

<!-- test: file start.sh -->
```sh
vllm serve
```

<!-- test: on gpu-001 -->
<!-- test: as NAME=>chat "the rest"=>"-l -a" -->
<!-- test: fails NO-SUCH -->
```console
$ ls NAME
$ ls the rest
```

<!-- test: prints -->
```text
what it
prints
```
"""


def test_a_page_is_read_in_order():
    assert steps(PAGE) == (
        Merge(4, "inventory/mine/hosts.yml", {"rack2": {"hosts": {"gpu-002": None}}}),
        Run(11, "one a \\\n    b", ("says … this", "and that")),
        Run(15, "two"),
        Skip(19, "gpu", "only they can"),
        Run(23, "cp a b"),
        Hands(24, ("off", "gpu-002")),
        Drop(25, "hosts.yml", ("rack2", "hosts", "gpu-002")),
        Run(27, "false\n", fails=True),
        File(36, "start.sh", "vllm serve\n"),
        Run(44, "ls chat", host="gpu-001"),
        Run(45, "ls -l -a", ("NO-SUCH", "what it", "prints"), fails=True, host="gpu-001"),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<!-- test: marge a.yml -->\n", "line 1: test: marge"),
        ("\n```console\nno prompt\n```\n", "line 3: a console block begins with a command"),
        ("<!-- test: fails -->\n```text\nx\n```\n", "nothing is run here"),
        ("<!-- test: skip because -->\n```sh\nx\n```\n", "line 2: test: skip: expected one of"),
        ("<!-- test: skip gpu -->\n```sh\nx\n```\n", "line 2: test: skip: expected one of"),
        ("```sh\nx\n```\n<!-- test: fails -->\n", "no block follows test: fails"),
        ("<!-- test: prints -->\n```text\nx\n```\n", "no command is before"),
        ("<!-- test: as A=>b -->\n```sh\nx\n```\n", "the block does not have it"),
        ("```\napiary x\n```\n", "line 1: a block without a language"),
        ("```text\n$ apiary x\n```\n", "line 1: commands in a text block"),
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
    assert missing(("…", "first", "…", "last", "…"), said) is None
    assert missing(("a 1 …",), "│ a    │ 1 │ b │\n") is None


def test_a_file_is_edited_where_the_page_says(tmp_path):
    assert merged({"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}}) == {"a": {"b": 1, "c": [2]}}
    edit(tmp_path, Merge(1, "d/x.yml", {"a": {"b": None, "c": 1}}))
    edit(tmp_path, Drop(2, "d/x.yml", ("a", "b")))
    assert (tmp_path / "d/x.yml").read_text() == "a:\n  c: 1\n"
    edit(tmp_path, File(3, "e/x.sh", "true\n"))
    assert (tmp_path / "e/x.sh").read_text() == "true\n"


PAGES = sorted([*DOCS.glob("tutorial/*.md"), *DOCS.glob("how-to/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_command_of_every_page_is_run_or_says_why_not(page):
    told = steps(page.read_text(encoding="utf-8"))
    if any(isinstance(one, Run) for one in told):
        assert page in FOLLOWED, "name the page in tests/docs/pages.py"


def test_pages_are_followed_once_and_those_that_are_there():
    assert len(set(FOLLOWED)) == len(FOLLOWED)
    assert set(FOLLOWED) <= set(PAGES)


@pytest.mark.parametrize("part", ["only-tuning", "only-replicas", "kubernetes-node", "slurm-node"])
def test_a_part_alone_is_run_with_the_variables_that_its_page_names(part):
    text = how_to(part).read_text(encoding="utf-8")
    blocks = map(yaml.safe_load, re.findall(r"(?ms)^```yaml\n(.*?)^```$", text))
    named = {key: value for one in blocks if isinstance(one, dict) for key, value in one.items()}
    (given,) = re.findall(r"site\.yml --limit gpu-001 --check[\s\\]+-e '(.*?)'", text)
    assert json.loads(given) == named
    options = {"apiary_concerns"}
    for path in DOCS.parent.glob("roles/*/meta/argument_specs.yml"):
        options |= yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"].keys()
    assert set(named) <= options
