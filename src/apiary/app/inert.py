# SPDX-License-Identifier: GPL-3.0-or-later

"""What makes a page ask for nothing and run nothing but its own scripts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2

TEMPLATES = Path(__file__).parent / "templates"


def policy(scripts: Sequence[str]) -> str:
    """Return a content security policy: no request, no script but these."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{item}'" for item in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; form-action 'none'; base-uri 'none'"
    )


def inline(data: Any) -> str:
    """Return JSON that no HTML parser takes for markup, and no script engine for a line's end."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def template(file: Path, **filters: Callable[..., Any]) -> jinja2.Template:
    """Return a page's template, which escapes all that it is given and may include `page.css`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([file.parent, TEMPLATES]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters.update(filters)
    return environment.get_template(file.name)
