# SPDX-License-Identifier: GPL-3.0-or-later

"""Many hosts as one: what each has and would change, in which order they change, how it went."""
