# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One test over many small cases: as pytest's parametrize, without the cost of a test for each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each(cases: Iterable[Any], name: Callable[[Any], str] = str) -> Callable[[Any], Any]:
    """Call a test with each case, its first arguments; fail with every case that fails, by name.

    A case that is a tuple is several arguments; those after them are fixtures.
    """
    several = [case if type(case) is tuple else (case,) for case in cases]
    assert several, "there are no cases"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(**fixtures: Any) -> None:
            failures = []
            for case in several:
                try:
                    test(*case, **fixtures)
                except AssertionError as failure:
                    failures.append(f"{', '.join(map(name, case))}: {failure}")
                except Exception as failure:
                    failure.add_note(f"the case is {', '.join(map(name, case))}")
                    raise
            assert not failures, "\n\n".join(failures)

        signature = inspect.signature(test)
        fixtures = list(signature.parameters.values())[len(several[0]) :]
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]  # inspect.signature reads it
        return run

    return decorate
