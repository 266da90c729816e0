# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the recorded counts of transformers' models and the tests over them share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.shared import SHARED

GOLDEN = Path(__file__).parents[1] / "golden/model-zoo.json"
TOLERANCE = 0.001
CONFIGS = SHARED / "data/model-configs"
# Cases where the library's model is not the one that is published, and why.
UNLIKE = {
    "longcat_flash default": "transformers gives the zero experts weights, which they have not",
    "longcat_flash small": "transformers gives the zero experts weights, which they have not",
    "helium small": "transformers' output projection only takes heads of hidden_size / heads",
}


def real_configs() -> dict[str, Any]:
    """Return the shared real config.json documents by file name; none where they are absent."""
    return {
        path.name: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(CONFIGS.glob("*.json"))
        if path.name != "index.json"
    }
