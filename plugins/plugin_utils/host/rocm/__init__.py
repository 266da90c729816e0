# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AMD's driver and ROCm on a host: from settings and evidence to the plan that the role applies."""

from __future__ import annotations

from .plan import decide
from .types import Key, Package, RocmPlan, Settings

__all__ = ["Key", "Package", "RocmPlan", "Settings", "decide"]
