# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Seeds that failed once: what they found does not come back."""

from pathlib import Path

import pytest
import yaml

from chaos.__main__ import main

SEEDS = yaml.safe_load((Path(__file__).parent / "seeds.yml").read_text())


@pytest.mark.night
@pytest.mark.parametrize("known", SEEDS, ids=str)
def test_a_seed_that_failed_once_passes(known):
    """The sequence is the same as long as these kinds and the parts of the lab are."""
    words = ["--seed", str(known["seed"]), "--steps", str(known["steps"])]
    assert main([*words, "--only", known["kinds"]]) == 0
