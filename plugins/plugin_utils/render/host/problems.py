# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ends a start: a refusal, a failure of the engine, or the order to stop."""

from __future__ import annotations


class RefusalError(Exception):
    """A start that must not happen, or an engine that must not go on: code, what, what to do."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code, self.remedy = code, remedy


class StoppedError(Exception):
    """The service manager wants the replica down."""
