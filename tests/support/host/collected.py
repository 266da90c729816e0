# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of scopes, as a host collects it when the controller has said what they are."""

from ansible_collections.apiary.instinct.plugins.module_utils.evidence.host import collect_host
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import sources


def collected(scopes, run, root):
    return collect_host(sources(scopes), run, root)
