# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The data behind the figures, and that plotly accepts it."""

import json
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.figures import (
    colour,
    escaped,
    figures,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.headline import make_report
from plotly.graph_objects import Figure as Plotly

from apiary.app.inert import TEMPLATES
from support.bench.documents import TP8, Curve, bench, failed

STEPS = (1, 8, 32, 64, 128, 256)


@pytest.fixture(scope="module")
def report():
    return make_report(
        [
            bench("DP2/TP4/EP4", steps=STEPS),
            bench("DP1/TP8/EP8", TP8, steps=STEPS, broken=(64,)),
        ]
    )


@pytest.fixture(scope="module")
def drawn(report):
    return {figure.id: figure for figure in figures(report)}


def lines(figure, configuration):
    """The joined curve of a configuration, as pairs."""
    (trace,) = [
        trace
        for trace in figure.data
        if trace["meta"] == configuration and trace["mode"] == "lines+markers"
    ]
    return dict(zip(trace["x"], trace["y"], strict=True))


def test_plotly_knows_every_property(drawn):
    assert len(drawn) == 12
    for figure in drawn.values():
        text = json.dumps({"data": figure.data, "layout": figure.layout})
        for variable in {part.split(")")[0] for part in text.split("var(")[1:]}:
            text = text.replace(f"var({variable})", "#123456")
        Plotly(json.loads(text))


def test_every_colour_is_one_of_the_page(report, drawn):
    style = (TEMPLATES / "page.css").read_text()
    text = json.dumps([[one.data, one.layout] for one in drawn.values()])
    named = {part.split(")")[0] for part in text.split("var(")[1:]}
    # In light, in dark by the system, and in dark by the button.
    assert {name: style.count(f"{name}:") for name in named} == dict.fromkeys(named, 3)
    assert "#" not in text


def test_a_configuration_has_one_colour_and_mark_everywhere(drawn):
    for figure in drawn.values():
        for trace in figure.data:
            if trace["mode"] == "lines+markers":
                assert trace["line"]["color"] == colour(trace["meta"]), figure.id
                assert trace["marker"]["color"] == colour(trace["meta"]), figure.id


def test_an_invalid_level_breaks_the_curve_and_stands_alone(drawn):
    figure = drawn["w0-throughput"]
    joined = lines(figure, 1)
    assert joined[64] is None
    assert joined[32] < joined[128]
    (alone,) = [trace for trace in figure.data if "INVALID" in trace["name"]]
    assert alone["mode"] == "markers"
    assert alone["marker"]["symbol"] == "circle-x-open"
    assert alone["x"] == [64]
    # The other configuration is whole.
    assert None not in lines(figure, 0).values()


def test_no_invalid_level_trades_throughput_for_latency(report, drawn):
    shown = [trace for trace in drawn["w0-pareto"].data if trace["meta"] == 1]
    assert not any("64 concurrent" in text for trace in shown for text in trace["text"])


def test_failed_levels_are_crosses():
    made = bench("A", steps=STEPS)
    levels = [failed(one) if one.load.concurrency == 128 else one for one in made.levels]
    report = make_report([replace(made, levels=tuple(levels))])
    figure = next(one for one in figures(report) if one.id == "w0-throughput")
    assert [t["marker"]["symbol"] for t in figure.data if t["mode"] == "markers"] == ["x-thin-open"]
    assert lines(figure, 0)[128] is None


def test_intervals_are_bars(report, drawn):
    trace = next(t for t in drawn["w0-throughput"].data if t["mode"] == "lines+markers")
    point = report.curves[0].points[0].values["output_token_rate"]
    assert trace["error_y"]["array"][0] == pytest.approx(point.high - point.mean, rel=0.01)
    assert trace["error_y"]["arrayminus"][0] == pytest.approx(point.mean - point.low, rel=0.01)


def test_limits_are_drawn_where_they_hold_and_within_the_axis(drawn):
    for name, axis, at in (("w0-ttft", "y", 2000), ("w0-tpot", "y", 50), ("w0-pareto", "x", 50)):
        (shape,) = drawn[name].layout["shapes"]
        assert shape[f"{axis}0"] == shape[f"{axis}1"] == pytest.approx(at)
    assert not drawn["w0-throughput"].layout["shapes"]
    assert drawn["w0-ttft"].layout["yaxis"]["autorangeoptions"]["include"] > [2000]


def test_saturation_is_ringed(drawn):
    rings = [trace for trace in drawn["w0-throughput"].data if "saturated" in trace["name"]]
    assert {trace["meta"] for trace in rings} == {0, 1}
    assert all(trace["marker"]["symbol"] == "circle-open" for trace in rings)


def test_what_nobody_measured_has_no_figure():
    made = bench("A", steps=STEPS, slo=(), open_loop=False)
    bare = [replace(one, engine=None, gpus=()) for one in made.levels]
    names = [one.id for one in figures(make_report([replace(made, levels=tuple(bare))]))]
    assert names == ["w0-throughput", "w0-pareto", "w0-ttft", "w0-tpot", "w0-e2el"]


def test_one_level_is_no_curve():
    assert figures(make_report([bench("A", steps=(8,), slo=(), open_loop=False)])) == ()


def test_more_configurations_than_colours_stay_apart():
    report = make_report([bench(f"C{n}", Curve(0.01 + n / 1e4), steps=(1, 8)) for n in range(10)])
    figure = next(one for one in figures(report) if one.id == "w0-throughput")
    looks = {
        (trace["line"]["color"], trace["line"]["dash"])
        for trace in figure.data
        if trace["mode"] == "lines+markers"
    }
    assert len(looks) == 10


def test_text_in_a_figure_is_no_markup():
    assert escaped("<a href='x'>&%{y}") == "&lt;a href='x'&gt;&amp;%&#123;y}"
