# SPDX-License-Identifier: GPL-3.0-or-later

"""A report as one HTML file that asks nobody for anything: scripts, styles and data are in it."""

from __future__ import annotations

import importlib.resources
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Interval
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.words import (
    flat,
    found_text,
    saturation_text,
    size_text,
    slo_text,
    workload_text,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import NONE, number
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.data import (
    Configuration,
    Report,
    best_load,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.figures import figures
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.headline import held_rate
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.tables import (
    level_tables,
    point_table,
    shown,
)

from apiary.app.inert import inline, policy, template


def page(report: Report) -> str:
    """Return the whole page; browsers may run only the two scripts whose hash it names."""
    scripts = (
        plotly_js(),
        Path(__file__).with_name("templates").joinpath("report.js").read_text(encoding="utf-8"),
    )
    drawn = figures(report)
    data = {item.id: {"data": item.data, "layout": item.layout} for item in drawn}
    return _template().render(
        report=report,
        title=_title(report),
        policy=policy(scripts),
        scripts=scripts,
        figures=drawn,
        data=inline(data),
        tables=level_tables(report),
        cards=[_card(report, place, one) for place, one in enumerate(report.configurations)],
        environment=_environment(report.configurations),
        commands=[_command(configuration) for configuration in report.configurations],
        points=[point_table(report, curve) for curve in report.curves],
        colours=shown().look["colours"],
    )


@cache
def plotly_js() -> str:
    """Return plotly's program, of the release that is installed; raise BENCH-EXTRA for none."""
    try:
        package = importlib.resources.files("plotly")
    except ImportError:
        raise error("BENCH-EXTRA", "plotly", "is not installed beside Apiary") from None
    file = package / "package_data" / "plotly.min.js"
    return file.read_text(encoding="utf-8")


@cache
def _template() -> jinja2.Template:
    file = Path(__file__).parent / "templates" / "report.html.j2"
    return template(file, workload=workload_text, slo=slo_text)


def _title(report: Report) -> str:
    models = dict.fromkeys(configuration.model for configuration in report.configurations)
    return f"Benchmark of {', '.join(models)}"


def _card(report: Report, place: int, one: Configuration) -> dict[str, Any]:
    """Return what the card of a configuration shows."""
    work = report.workloads[0]
    rate = held_rate(one, work)
    matches = [item for item in one.searches if item.workload == work.name]
    peak = _peak(report, place, work.name)
    full = [item for item in one.saturation if item.workload == work.name]
    facts = [("kept the SLO at", found_text(item)) for item in matches]
    if rate is not None and one.gpus:
        facts.append(("for each GPU", f"{number(rate.mean / one.gpus)} requests/s"))
    if peak:
        facts.append(("most output", peak))
    for item in full:
        text = saturation_text(item)
        facts.append(("saturation", text if text == item.reason else f"{text}: {item.reason}"))
    return {
        "name": one.name,
        "colour": place % shown().look["colours"],
        "layout": one.layout if one.layout != one.name else None,
        "size": _size(one),
        "rate": number(rate.mean) if rate else None,
        "sure": _sure(rate),
        "best": report.headline.best == place,
        "facts": facts,
        "counts": one.counts,
    }


def _sure(rate: Interval | None) -> str:
    """Return how sure a rate is, in as many words as a card has room for."""
    if rate is None or rate.low is None or rate.high is None:
        return "one run"
    kind = "95 % interval" if rate.n > 1 else "one run,"
    return f"{kind} {number(rate.low)} to {number(rate.high)}"


def _size(one: Configuration) -> str:
    counts = ((one.gpus, "GPU"), (one.hosts, "host"))
    parts = [f"{many} {what}{'s' * (many > 1)}" for many, what in counts if many]
    gpu = one.benches[0].environment.get("gpu")
    return str(gpu) if gpu else ", ".join(parts)


def _peak(report: Report, place: int, workload: str) -> str | None:
    curves = [curve for curve in report.curves if curve.configuration == place]
    peak = best_load(curves, workload, "output_token_rate")
    if peak is None:
        return None
    rate, curve, point = peak
    return f"{number(rate.mean)} tokens/s, {size_text(curve.by, point.size)}"


def _environment(configurations: Sequence[Configuration]) -> list[tuple[str, list[str]]]:
    """Return how each was measured: a row a fact, with one cell where it is the same for all."""
    columns = [dict(_facts(configuration)) for configuration in configurations]
    rows = []
    for name in dict.fromkeys(name for column in columns for name in column):
        cells = [column.get(name, NONE) for column in columns]
        rows.append((name, cells[:1] if len(set(cells)) == 1 else cells))
    return rows


def _facts(one: Configuration) -> list[tuple[str, str]]:
    first = one.benches[0]
    requested = first.requested
    known = {key: value for key, value in first.environment.items() if key != "command"}
    return [
        ("model", one.model),
        ("measured", ", ".join(dict.fromkeys(bench.created for bench in one.benches))),
        ("addresses", ", ".join(first.target.urls)),
        ("workload", f"{requested.workload.name}: {workload_text(requested.workload)}"),
        ("SLO", slo_text(requested.slo)),
        ("phases", ", ".join(requested.phases)),
        (
            "restarts, repeats",
            f"{max(requested.engine_runs, len(one.benches))}, {requested.repeats}",
        ),
        ("seed", ", ".join(dict.fromkeys(str(bench.requested.seed) for bench in one.benches))),
        *flat(known),
    ]


def _command(one: Configuration) -> str | None:
    """Return what to type to repeat a configuration's benchmark."""
    command = one.benches[0].environment.get("command")
    if isinstance(command, (list, tuple)):
        return shlex.join(map(str, command))
    return command if isinstance(command, str) else None
