# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/images/demo.svg: a terminal in which `make demo` has run."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
ROWS, COLUMNS = 50, 118
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
# rich's own names a font on somebody's server; a picture asks nobody for anything.
FORMAT = re.sub(
    r" *@font-face \{\{.*?\n    \}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL
).replace("Fira Code, monospace", "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace")


def recorded() -> str:
    """Run the demo on a terminal of its own and return all that it printed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        ["make", "--no-print-directory", "demo"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    said = b""
    while chunk := _read(ours):
        said += chunk
        sys.stderr.buffer.write(chunk)
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"make demo ended with {process.returncode}")
    return said.decode(errors="replace").replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    """Return what came, nothing at the end: a terminal whose other side is closed is an error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


def excerpt(said: str) -> list[str]:
    """Return the lines worth a picture: the steps, Ansible's recap, and what serves.

    What differs from run to run (times, ports, paths) is left out, so that two runs draw the same.
    """
    kept = ["$ make demo"]
    before, _mark, after = said.partition("[2/3]")
    kept += [line for line in before.splitlines() if ESCAPE.sub("", line).startswith("[1/3]")]
    steps, _mark, shown = after.partition("[3/3]")
    lines = steps.splitlines()
    kept += [f"[2/3]{lines[0]}"]
    plain = [ESCAPE.sub("", line) for line in lines]
    kept += [line for line, bare in zip(lines, plain, strict=True) if bare.startswith("$ ansible")]
    recap = next(number for number, line in enumerate(plain) if line.startswith("PLAY RECAP"))
    tasks = sum(line.startswith("TASK [") for line in plain)
    kept += [f"… {tasks} tasks …", *(line for line in lines[recap + 1 :] if line.strip())]
    silent = False
    for line in f"[3/3]{shown}".splitlines():
        bare = ESCAPE.sub("", line)
        if bare.startswith("Done in "):
            break
        # A table for another page, and paths of this machine: left out to the next empty line.
        silent = bool(bare.strip()) and (silent or bare.startswith(("link ", "--- files")))
        if not silent and (bare.strip() or kept[-1]):
            kept.append(line if bare.strip() else "")
    return kept if kept[-1] else kept[:-1]


def svg(said: str) -> str:
    """Return the picture of a terminal with these lines."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False
    )
    for line in excerpt(said):
        console.print(Text.from_ansi(line), soft_wrap=False, overflow="fold")
    return console.export_svg(
        title="make demo", theme=MONOKAI, code_format=FORMAT, unique_id="demo"
    )
