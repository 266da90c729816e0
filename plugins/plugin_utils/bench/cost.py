# SPDX-License-Identifier: GPL-3.0-or-later

"""What serving takes: money by the price of a GPU-hour, energy by the power that GPUs drew.

Each level has quotients of its own: what is spent a second (currency/s; W, which is J/s) by what is
served a second. They become one figure at the SLO as the request rate does (search.at_edge): a mean
over engine runs with its t-interval. So power and rate of one run stay together. A price is exact.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from ..documents import knowledge
from ..findings import error
from .comparison.compare import Comparison, compare_values, search_width
from .comparison.sameness import merged
from .ledger import By, Figure, rate_of
from .search import at_edge, searched_by, slo_rates
from .types import Amounts, Bench, Cost, Level, Price
from .words import between

JOULES = "J"
# Of a GPU; more is no reading of one.
_MOST_WATTS = 1e5
# What is served a second, how many of it are one unit, and what a unit is called.
_UNITS = {
    "million_output_tokens": ("output_token_rate", 1e6, "million output tokens"),
    "million_tokens": ("total_token_rate", 1e6, "million tokens"),
    "request": ("request_rate", 1.0, "request"),
}


def price_of(given: object) -> Price | None:
    """Return the price that `2.10` (USD) or `2.10 EUR` is, None for none; raises BENCH-PRICE."""
    words = "" if given is None else str(given)
    number, _space, currency = " ".join(words.split()).partition(" ")
    try:
        return Price(float(number), *[currency] * bool(currency)) if number else None
    except ValueError:
        raise error("BENCH-PRICE", "a GPU-hour", f"{words[:40]!r} is no number") from None


def watts(level: Level, gpus: int | None, addresses: Collection[str] = ()) -> float | None:
    """Return the mean power (W) of the ``gpus`` GPUs that serve, all together, during a level.

    Where a host has more of them, those at the ``addresses`` (PCI) count. None where the power of
    not just as many is known: a part of the sum is no sum.
    """
    means = {gpu.key: gpu.power_w_mean or 0.0 for gpu in level.gpus}
    known = {key: mean for key, mean in means.items() if 0 < mean < _MOST_WATTS}
    own = {key: mean for key, mean in known.items() if key in addresses} or known
    return math.fsum(own.values()) if len(own) == gpus else None


def cost_of(benches: Sequence[Bench], by: By) -> Cost | None:
    """Return what one configuration takes at the highest load that kept its limits; else None."""
    first, prices = benches[0], {bench.price for bench in benches}
    gpus, levels, workload = _gpus(first)[0], merged(benches), first.requested.workload.name
    price, flows = first.price if len(prices) == 1 else None, _flows_of(benches)

    held = partial(at_edge, levels, workload, by)
    if held() is None:
        return None

    def amounts(flow: Figure | None) -> Amounts | None:
        found = [held(partial(_quotient, flow, *unit[:2])) for unit in _UNITS.values() if flow]
        known = [one for one in found if one is not None]
        return Amounts(*known) if len(known) == len(_UNITS) else None

    drawn = held(flows[JOULES])
    unknown = [] if gpus else ["how many GPUs serve is not known (--gpus, or --plan)"]
    if gpus and drawn is None:
        read = max((len(level.gpus) for level in levels), default=0)
        unknown.append(f"no energy: power was read of {read} GPUs, and {gpus} serve")
    if len(prices) > 1:
        unknown.append("no money: the results have several prices of a GPU-hour")
    money = amounts(flows.get(price.currency)) if price else None
    cost = Cost(gpus, price, money, drawn, amounts(flows[JOULES]))
    if (price and gpus and not money) or (drawn and not cost.joules):
        unknown.append("nothing by the token: no level that counts has rates of all tokens")
    return replace(cost, text=(*_text(cost), *unknown))


def with_cost(bench: Bench, price: Price | None = None) -> Bench:
    """Return a benchmark whose searches have what they found takes, by another price if given."""
    priced = replace(bench, price=price or bench.price)
    found = (replace(one, cost=cost_of([priced], one.by)) for one in bench.searches)
    return replace(priced, searches=tuple(found))


def with_costs(known: Comparison, a: Sequence[Bench], b: Sequence[Bench]) -> Comparison:
    """Return a comparison with that of what each side takes at the SLO, a row a unit.

    The rows share the confidence, and none of them is part of the verdict on the rates.
    """
    by = next(iter(searched_by((*a, *b))), None)
    if by is None or known.verdict is None:
        return known
    first, second = _flows_of(a), _flows_of(b)
    rows = []
    for unit in sorted(first.keys() & second.keys()):
        for rate, units, name in _UNITS.values():
            ours = slo_rates(a, by, partial(_quotient, first[unit], rate, units))
            theirs = slo_rates(b, by, partial(_quotient, second[unit], rate, units))
            if ours and theirs:
                rows.append((ours, theirs, f"{unit} per {name} at the SLO"))
    share = (1 - knowledge("bench/protocol.yml")["compare"]["confidence"]) / max(1, len(rows))
    rule = {"confidence": 1 - share, "resolution": search_width((*a, *b), by)}
    return replace(
        known, costs=tuple(compare_values(*row, less_is_better=True, **rule) for row in rows)
    )


def _text(cost: Cost) -> Iterator[str]:
    """Yield what is known of a cost, a line for money and one for energy."""
    gpus = f"{cost.gpus} GPU{'' if cost.gpus == 1 else 's'}"
    if cost.money and cost.price:
        currency, each = cost.price.currency, f"{cost.price.gpu_hour:,.6g}"
        yield f"{_listed(cost.money, currency)}: {gpus} at {each} {currency} an hour"
    if cost.joules:
        yield f"{_listed(cost.joules, 'kJ', 1e-3)}: {gpus} at {between(cost.watts, 'W')} together"


def _listed(amounts: Amounts, unit: str, scale: float = 1) -> str:
    each = ((getattr(amounts, key), name) for key, (_rate, _units, name) in _UNITS.items())
    return ", ".join(f"{between(taken, unit, scale)} per {name}" for taken, name in each)


def _gpus(bench: Bench) -> tuple[int | None, tuple[str, ...]]:
    """Return how many GPUs serve, and their addresses where a plan says: partitions are of one."""
    placed = bench.environment.get("gpu_addresses")
    addresses = tuple(map(str, placed)) if isinstance(placed, (list, tuple)) else ()
    return len(addresses) or bench.target.gpus, addresses


def _flows(bench: Bench) -> dict[str, Figure]:
    """Return what is spent a second at a level, by its unit: joules, and money where known."""
    gpus, addresses = _gpus(bench)
    flows: dict[str, Figure] = {JOULES: lambda level: watts(level, gpus, addresses)}
    if bench.price is not None and gpus:
        each_second = bench.price.gpu_hour * gpus / 3600
        flows[bench.price.currency] = lambda _level: each_second
    return flows


def _flows_of(benches: Sequence[Bench]) -> dict[str, Figure]:
    """Return those of the results of one configuration: money only where they have one price."""
    one_price = len({bench.price for bench in benches}) == 1
    return _flows(benches[0] if one_price else replace(benches[0], price=None))


def _quotient(flow: Figure, rate: str, units: float, level: Level) -> float | None:
    """Return what so many units take where ``flow`` is spent a second, and ``rate`` served."""
    spent, served = flow(level), getattr(level.measured, rate, 0.0)
    return None if rate_of(level) is None or spent is None or not served else spent / served * units
