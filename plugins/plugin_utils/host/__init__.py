# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host is and what it has to become: pure functions from evidence to changes and checks."""
