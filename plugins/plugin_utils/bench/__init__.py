# SPDX-License-Identifier: GPL-3.0-or-later

"""How fast a deployment serves, measured so that the numbers can be published."""
