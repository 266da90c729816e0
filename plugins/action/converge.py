# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a module on its host, and explain the findings that it returns.

Not converge's alone: meta/runtime.yml has the other modules whose tasks come here.
"""

from __future__ import annotations

from ..plugin_utils.adapters import Completing


class ActionModule(Completing):
    """The converge action, of every module that returns findings of its host."""
