# SPDX-License-Identifier: GPL-3.0-or-later

"""What benchmarks say together: curves, tables and figures as data, the answer in a sentence."""
