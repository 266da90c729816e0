# SPDX-License-Identifier: GPL-3.0-or-later

"""The `apiary` command and what needs third-party packages."""
