# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ends a start: a refusal, a failure of the engine, or the order to stop."""

from __future__ import annotations

from ....module_utils.finding import ApiaryError, error


def replica_error(code: str, message: str, minor: bool = False, **values: str) -> ApiaryError:
    """Return why a start must not happen, or an engine must not go on.

    Its subject is the unit, which whoever prints it knows.
    """
    return error(code, "replica", message, minor=minor, **values)


class StoppedError(Exception):
    """The service manager wants the replica down."""
