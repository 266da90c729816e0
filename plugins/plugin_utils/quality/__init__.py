# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a replica still answers as it did: questions, evaluation, comparison to a reference."""
