# SPDX-License-Identifier: GPL-3.0-or-later

"""What is watched of a fleet, by which names, and when somebody is called."""
