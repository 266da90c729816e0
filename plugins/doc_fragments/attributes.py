# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the pages of modules say of check mode and diffs where they say the same."""

from __future__ import annotations


class ModuleDocFragment:
    """Sections by name: `extends_documentation_fragment: apiary.instinct.attributes.decides`."""

    # An action that decides on the controller and leaves the host alone.
    DECIDES = r"""
attributes:
  action:
    description: Has an action plugin, so it runs on the controller.
    support: full
  check_mode:
    description: Can run in check mode and predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed, when in diff mode.
    support: none
    details: The action changes nothing on the host.
"""

    # An action on the controller whose result has a diff.
    DIFFERS = r"""
attributes:
  action:
    description: Has an action plugin, so it runs on the controller.
    support: full
  check_mode:
    description: Can run in check mode and predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed, when in diff mode.
    support: full
"""

    # A module that only reads.
    READS = r"""
attributes:
  check_mode:
    description: Can run in check mode and predict the changed status without modifying the target.
    support: full
    details: The module only reads.
  diff_mode:
    description: Will return details on what has changed, when in diff mode.
    support: none
    details: The module changes nothing.
"""

    # A module that changes the host, exact in check mode.
    APPLIES = r"""
attributes:
  check_mode:
    description: Can run in check mode and predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed, when in diff mode.
    support: full
"""
