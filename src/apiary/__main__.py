# SPDX-License-Identifier: GPL-3.0-or-later

"""`python -m apiary`, and what the program `apiary` starts."""

import sys


def main() -> int:
    """Run the command; its version alone needs nothing of what that imports."""
    if sys.argv[1:] == ["--version"]:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"apiary, version {version('apiary')}")
            return 0
        except PackageNotFoundError:
            pass  # it runs from a tree without being installed, which the command says
    from apiary.app.cli import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
