# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A router's traces: what is rendered for them, what is refused, spans made of HAProxy's lines."""

import json
import re
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import render_router
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.router_programs import traces
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.router_traces import (
    COUNTERS,
    DOCUMENT,
    HEADERS,
    NO_CONFIGURATION,
    PROGRAM,
    headers_file,
    render_traces,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.check import check_settings
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    RouterSettings,
    RouterTracing,
)
from hypothesis import given
from hypothesis import strategies as st

from support.otlp import of_json
from support.router_cases import TRACED, routers

SERVERS = {
    "demo": {"host-0": {"host": "host", "replica": "0", "address": "10.0.0.1", "port": 8000}}
}
RECORD = {
    "time": 1700000000.25,
    "deployment": "demo",
    "request": "mine",
    "client": "192.0.2.77",
    "key": "alice",
    "method": "POST",
    "path": "/v1/completions",
    "server": "host-0",
    "termination": "----",
    "trace": "a" * 32,
    "span": "b" * 16,
    "parent": "c" * 16,
    "sampled": "01",
    "session": "-77",
    "began": "1700000000250000",
    "ended": "1700000001250000",
    "status": 200,
    "ms_request": 5,
    "ms_queue": 10,
    "ms_connect": 1,
    "ms_first_byte": 100,
    "ms_total": 1005,
    "bytes_in": 10,
    "bytes_out": 20,
    "retries": 0,
    "queued_before": 0,
    "running": 1,
}


def span(**changes):
    made = traces.span_of({**RECORD, **changes}, SERVERS)
    [one] = of_json(traces.document([made], {"service.name": "router"}))
    return one


def files(settings=None, python="/usr/bin/python3"):
    router = routers()["traced"]
    return {
        file.path: file
        for file in render_traces(replace(router, settings=settings or router.settings), python)
    }


def test_golden(golden):
    for path, file in files().items():
        name = path.rpartition("/")[2]
        if path != PROGRAM:
            golden(f"router/traced-host/{name}", file.content)


def test_a_router_without_traces_has_none_of_it():
    assert files(RouterSettings()) == {}
    assert all("traces" not in file.path for file in render_router(routers()["default"]))


def test_the_units_name_every_file_and_no_secret():
    rendered = files()
    unit = rendered["/etc/systemd/system/apiary-traces.service"].content
    assert all(path in unit for path in (PROGRAM, DOCUMENT, HEADERS))
    assert HEADERS not in rendered
    assert rendered[PROGRAM].content == traces.__loader__.get_source(traces.__name__)
    assert (COUNTERS, NO_CONFIGURATION) == (traces.COUNTERS, traces.NO_CONFIGURATION)


def test_haproxy_writes_where_the_socket_is():
    [configuration] = [
        file.content for file in render_router(routers()["traced"]) if file.path.endswith(".cfg")
    ]
    [target] = re.findall(r"log (\S+) len 4096 format raw", configuration)
    [listens] = re.findall(
        r"ListenDatagram=(\S+)", files()["/etc/systemd/system/apiary-traces.socket"].content
    )
    assert target == listens


def test_headers_are_roots_alone():
    file = headers_file({"Authorization": "Bearer x y"})
    assert (file.path, file.mode) == (HEADERS, "0600")
    assert json.loads(file.content) == {"Authorization": "Bearer x y"}


@pytest.mark.parametrize(
    "headers", [{"A b": "x"}, {"A": "planted\r\nB: c"}, {"A": "plänted"}, {"": "x"}, {"A": " x"}]
)
def test_a_header_that_http_cannot_have_is_refused_without_its_value(headers):
    with pytest.raises(ApiaryError) as caught:
        headers_file(headers)
    assert [one.code for one in caught.value.findings] == ["TRACE-SETTING"]
    assert "pl" not in str(caught.value).replace("plain", "")


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("endpoint", {"endpoint": "collector:4318"}),
        ("endpoint", {"endpoint": "http://collector:4318"}),
        ("endpoint", {"endpoint": "http://u:p@collector:4318/v1/traces"}),
        ("ratio", {"ratio": 2.0}),
        ("port", {"port": 0}),
        ("certificate", {"certificate": "relative.pem"}),
        ("service", {"service": 'a"b'}),
    ],
)
def test_what_cannot_be_meant_is_refused(field, change):
    [found] = check_settings(RouterSettings(tracing=replace(TRACED, **change)))
    assert (found.code, found.subject) == ("TRACE-SETTING", f"tracing.{field}")


def test_what_can_be_meant_is_taken():
    tracing = RouterTracing("https://c:4318/v1/traces", 0.0, False, "edge", "/etc/ca.pem")
    assert check_settings(RouterSettings(tracing=tracing)) == ()


@pytest.mark.parametrize(
    "text",
    [
        f"00-{'a' * 32}-{'b' * 16}-01",
        f"00-{'0' * 31}1-{'0' * 15}1-ff",
        f"01-{'a' * 32}-{'b' * 16}-00-more",
        f"fe-{'a' * 32}-{'b' * 16}-01",
    ],
)
def test_a_sound_traceparent(text):
    facts = knowledge("tracing.yml")["traceparent"]
    assert re.search(facts["current"], text) or re.search(facts["later"], text)
    assert not re.search(facts["zero"], text)
    assert bool(re.search(facts["sampled"], text)) == text.split("-")[3].endswith(("1", "f"))


@given(st.text(alphabet="0f-aZ", max_size=60))
def test_whatever_is_taken_has_ids_of_the_right_length(text):
    facts = knowledge("tracing.yml")["traceparent"]
    if re.search(facts["current"], text) or re.search(facts["later"], text):
        _version, trace, parent, flags = text.split("-")[:4]
        assert (len(trace), len(parent), len(flags)) == (32, 16, 2)


def test_a_line_becomes_a_span():
    made = span()
    assert (made.trace, made.span, made.parent) == ("a" * 32, "b" * 16, "c" * 16)
    assert made.name == "POST /v1/completions"
    assert (made.start, made.end) == (1700000000245000000, 1700000001250000000)
    assert made.attributes["apiary.replica"] == "0"
    assert made.attributes["apiary.session"] == "-77"
    assert len(made.events) == 4


def test_a_span_has_no_client_and_no_key():
    text = traces.document([traces.span_of(RECORD, SERVERS)], {}).decode()
    assert RECORD["client"] not in text
    assert RECORD["key"] not in text


def test_a_request_that_begins_a_trace_has_no_parent():
    assert span(parent="-").parent == ""


@pytest.mark.parametrize(
    ("status", "state", "error"),
    [
        (200, "----", None),
        (429, "PR--", None),
        (-1, "CD--", None),
        (-1, "cD--", None),
        (-1, "SD--", "SD--"),
        (502, "SH--", "502"),
        (503, "sQ--", "503"),
    ],
)
def test_what_is_an_error(status, state, error):
    made = span(status=status, termination=state)
    assert made.attributes.get("error.type") == error
    assert made.status == (2 if error else 0)


def test_steps_that_were_not_reached_are_no_events():
    assert span(ms_connect=-1, ms_first_byte=-1).events == (
        "request received",
        "out of the queue",
    )
    assert span(ms_request=-1, ms_queue=-1, ms_connect=-1, ms_first_byte=-1).events == ()


def test_a_clients_words_are_no_names_of_spans():
    made = span(server="<NOSRV>", path="/" + "x" * 4000, method="BREW")
    assert made.name == "_OTHER"
    assert len(made.attributes["url.path"]) == 256
    assert "apiary.server" not in made.attributes


def test_a_span_never_ends_before_it_begins():
    made = span(ended="1600000000000000")
    assert made.start == made.end


class Taking:
    """A collector that keeps what it gets, or fails."""

    endpoint = "http://collector/v1/traces"

    def __init__(self, *answers):
        self.answers, self.bodies = list(answers), []

    def post(self, body):
        self.bodies.append(body)
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        return answer


def exporter(collector, **changes):
    limits = knowledge("tracing.yml")["exporter"]
    told = {**limits, "service": "router", "servers": SERVERS, "delay_seconds": 0.01, **changes}
    said = []
    return traces.Exporter(told, collector, say=said.append), said


def line(**changes):
    return json.dumps({**RECORD, **changes}).encode()


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b"x",
            b"[]",
            b"1",
            b"{}",
            b"\xff",
            line()[:-5],
            line(trace="-"),
            line(span="x" * 16),
        ),
        *(line(began="-"), line(status=None), line(ms_queue="x"), line(server=[])),
    ],
)
def test_a_line_that_is_none_is_counted_and_nothing_else(text):
    one, said = exporter(Taking())
    one.take(text)
    assert (one.counters.malformed, said) == (1, [])


def test_what_is_not_sampled_is_not_sent():
    collector = Taking()
    one, _said = exporter(collector)
    one.start()
    one.take(line(sampled="00"))
    one.stop(10)
    assert (one.counters.unsampled, collector.bodies) == (1, [])


def test_memory_is_bounded_and_what_finds_no_room_is_counted():
    one, _said = exporter(Taking(), queue_spans=3)
    for _number in range(10):
        one.take(line())
    assert one.counters.dropped == 7
    assert "apiary_trace_queue_spans 3\n" in one.counters.text(3)


def test_batches_are_of_a_size():
    collector = Taking()
    one, _said = exporter(collector, batch_spans=4)
    for _number in range(10):
        one.take(line())
    one.start()
    one.stop(10)
    assert [len(list(of_json(body))) for body in collector.bodies] == [4, 4, 2]
    assert (one.counters.exported, one.counters.sent) == (10, 3)


@pytest.mark.parametrize("refusal", [400, 401, 404, 500])
def test_what_the_collector_refuses_for_good_is_not_sent_again(refusal):
    collector = Taking(refusal)
    one, said = exporter(collector)
    one.take(line())
    one.start()
    one.stop(10)
    assert len(collector.bodies) == 1
    assert (one.counters.dropped, one.counters.failed) == (1, 1)
    assert f"answers {refusal}" in said[0]


def test_a_service_that_ends_tries_once():
    collector = Taking(*[OSError("away")] * 10)
    one, said = exporter(collector)
    one._ending.set()
    one.take(line())
    one.start()
    one.stop(10)
    assert len(collector.bodies) == 1
    assert (one.counters.dropped, len(said)) == (1, 1)


def test_counters_are_what_prometheus_reads(tmp_path):
    one, _said = exporter(Taking())
    one.directory = str(tmp_path)
    one.take(b"x")
    one.write_counters()
    text = (tmp_path / COUNTERS).read_text()
    assert 'apiary_trace_spans_total{result="malformed"} 1\n' in text
    kinds = [text for text in text.splitlines() if text.startswith("# TYPE")]
    assert len(kinds) == 3


def test_a_collectors_headers_come_from_the_credential(tmp_path):
    assert traces.headers_from(None) == {}
    assert traces.headers_from(str(tmp_path)) == {}
    (tmp_path / "headers").write_text('{"A": "b"}')
    assert traces.headers_from(str(tmp_path)) == {"A": "b"}
    (tmp_path / "headers").write_text('{"A": "planted\\r\\nB: c"}')
    with pytest.raises(ValueError, match="'A'") as caught:
        traces.headers_from(str(tmp_path))
    assert "planted" not in str(caught.value)


def test_without_a_socket_the_service_says_what_is_missing(tmp_path, capsys):
    (tmp_path / "traces.json").write_text(files()[DOCUMENT].content)
    assert traces.main([str(tmp_path / "traces.json")]) == NO_CONFIGURATION
    assert "apiary-traces.socket" in capsys.readouterr().err
    assert traces.main([str(tmp_path / "none.json")]) == NO_CONFIGURATION
