# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The dashboards as they are written down, read by the tool that builds what is shipped."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tools/dashboards"))

from build_dashboards import NAMES, boards, built

__all__ = ["NAMES", "boards", "built"]
