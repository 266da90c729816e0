# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run rocm_packages on its host, and explain the findings that it returns."""

from __future__ import annotations

from ..plugin_utils.adapters import Completing


class ActionModule(Completing):
    """The rocm_packages action: the module's result with the catalogue's remedies."""
