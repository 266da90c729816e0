# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The team's shared material, where it stands beside the checkout; tests that read it skip else."""

from pathlib import Path

SHARED = Path(__file__).parents[3] / "shared"
