# SPDX-License-Identifier: GPL-3.0-or-later

"""Which layout and settings serve best, found by measuring each on a host."""
