# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host is what its settings say, from fresh evidence: checks, and drift by name."""
