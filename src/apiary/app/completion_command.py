# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary completion`: what makes a shell complete this command."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

VARIABLE = "_APIARY_COMPLETE"


class Bash(BashComplete):
    """Bash cuts words at `=`, which belongs to the option before it."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        joined: list[str] = []
        rest = iter(args)
        for word in rest:
            if word == "=" and joined:
                joined[-1] += "=" + next(rest, "")
            else:
                joined.append(word)
        return joined, incomplete


SHELLS: dict[str, type[ShellComplete]] = {
    "bash": Bash,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command(name="completion")
@click.argument("shell", type=click.Choice(list(SHELLS)), metavar="{bash|zsh|fish}")
def completion(shell: str) -> int:
    """Print what makes your shell complete commands, options, findings' codes, hosts and files.

    \b
    source <(apiary completion bash)                                  this shell
    apiary completion bash > ~/.local/share/bash-completion/completions/apiary
    apiary completion zsh > ~/.zfunc/_apiary                          with ~/.zfunc in fpath
    apiary completion fish > ~/.config/fish/completions/apiary.fish

    Hosts are read from YAML and INI files of the --inventory before them; no script is run.
    """
    command = SHELLS[shell](click.Command("apiary"), {}, "apiary", VARIABLE)
    click.echo(command.source(), nl=False)
    return 0
