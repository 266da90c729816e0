# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A double of `vllm serve` for lab hosts without GPUs: this is not vLLM and answers no model.

It stands for one vLLM version, whose flags, choices, environment variables and metric names are
in `vllm_<version>.json` beside this file (build.py writes it from Apiary's knowledge). It is
strict: what that version refuses it refuses with the same exit status, and it checks that the
GPUs, CPUs and memory nodes it was promised are the ones it runs under. Standard library only,
Python 3.9.
"""
