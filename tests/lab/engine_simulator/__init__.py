# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A double of serving engines that keeps a latency model: lab code, it serves no model."""

from engine_simulator.parameters import Client, Engine, Faults, Parameters, names, parameters
from engine_simulator.simulate import simulate

__all__ = ["Client", "Engine", "Faults", "Parameters", "names", "parameters", "simulate"]
