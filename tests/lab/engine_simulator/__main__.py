# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`python -m engine_simulator serve | fit | truth`: a lab double of serving engines."""

from __future__ import annotations

import argparse
import asyncio
import contextlib

from engine_simulator.parameters import names, parameters


def main() -> None:
    """Run what is requested."""
    parser = argparse.ArgumentParser(prog="engine_simulator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fit", help="write parameters/*.yml again")
    truth = commands.add_parser("truth", help="write truth.yml again; takes minutes")
    truth.add_argument("case", nargs="*")
    serve = commands.add_parser("serve", help="serve HTTP in real time; prints its port")
    serve.add_argument("--parameters", choices=names(), default="small")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=0)
    serve.add_argument("--speed", type=float, default=1.0, help="so many times faster")
    serve.add_argument("--model", help="the name it serves, else the parameters' own")
    serve.add_argument("--seed", type=int, default=0, help="another one is another engine run")
    requested = parser.parse_args()
    if requested.command == "fit":
        from engine_simulator import fit

        fit.write()
    elif requested.command == "truth":
        from engine_simulator import truth as truths

        truths.write(tuple(requested.case))
    else:
        from engine_simulator.serve import faster
        from engine_simulator.serve import serve as run

        chosen = faster(parameters(requested.parameters), requested.speed)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(
                run(
                    chosen,
                    requested.host,
                    requested.port,
                    requested.model or chosen.model,
                    requested.seed,
                )
            )


if __name__ == "__main__":
    main()
