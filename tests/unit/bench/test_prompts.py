# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a load's requests say and when they come: pure functions of its seed."""

from __future__ import annotations

import base64
import statistics
import struct
import zlib
from collections import Counter
from itertools import pairwise

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.load.prompts import (
    Images,
    TokenIds,
    Words,
    arrivals,
    input_tokens,
    replayed,
    share,
    turns_of,
)
from ansible_collections.apiary.instinct.plugins.module_utils.load.sse import Response
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from support.bench.load_servers import stream, token, usage

IDS = TokenIds("s", 300, 999)


def test_arrivals_are_a_poisson_process_of_the_rate() -> None:
    times = arrivals(50.0, 4000, "s")
    gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    assert times[-1] == pytest.approx(4000 / 50)
    assert statistics.mean(gaps) == pytest.approx(1 / 50)
    assert stats.kstest(gaps, "expon", args=(0, 1 / 50)).pvalue > 0.05
    # A second's arrivals scatter as a Poisson count does: their variance is their mean.
    counts = Counter(int(one) for one in times)
    assert statistics.variance([counts[n] for n in range(80)]) == pytest.approx(50, rel=0.35)
    assert arrivals(50.0, 4000, "s") == times
    assert arrivals(50.0, 4000, "t") != times


@settings(deadline=None)
@given(st.integers(0, 3000), st.integers(1, 9))
def test_shares_are_even_and_sum_up(total: int, shards: int) -> None:
    found = [share(total, shard, shards) for shard in range(shards)]
    assert sum(found) == total
    assert max(found) - min(found) <= 1


@settings(deadline=None)
@given(st.integers(1, 3000), st.text(max_size=5))
def test_token_ids_are_as_many_as_requested(count: int, name: str) -> None:
    ids = IDS.text(name, count).split(",")
    assert len(ids) == count
    assert all(300 <= int(one) <= 999 for one in ids)


def test_token_ids_share_no_beginning() -> None:
    made = TokenIds("s", 300, 30_000)
    texts = [made.text(str(number), 600) for number in range(300)]
    assert len({text[:40] for text in texts}) == 300
    assert TokenIds("s", 300, 30_000).text("7", 600) == texts[7]
    assert TokenIds("t", 300, 30_000).text("7", 600) != texts[7]
    assert made.text("7", 0) == ""


def test_words_fill_what_the_template_leaves() -> None:
    made = Words("s", [(" a", 1.0), (" bb", 2.0), (" ccc", 3.0)], extra=7.0)
    lengths = [sum(map(len, made.text(str(n), 100).split())) for n in range(20)]
    assert lengths == [93] * 20
    assert sum(map(len, made.text("x", 100, first=False).split())) == 100


@pytest.mark.parametrize("size", [(32, 16), (50, 33)])
def test_images_are_png_and_no_two_have_a_colour_in_common(size: tuple[int, int]) -> None:
    made = Images("s")
    urls = [made.url(str(number), *size) for number in range(50)]
    assert len(set(urls)) == 50
    assert Images("s").url("3", *size) == urls[3]
    data = base64.b64decode(urls[0].removeprefix("data:image/png;base64,"))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    found, place = {}, 8
    while place < len(data):
        length, kind = struct.unpack(">I4s", data[place : place + 8])
        body = data[place + 8 : place + 8 + length]
        (check,) = struct.unpack(">I", data[place + 8 + length : place + 12 + length])
        assert check == zlib.crc32(kind + body)
        found[kind] = body
        place += 12 + length
    assert list(found) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    assert struct.unpack(">II", found[b"IHDR"][:8]) == size
    assert len(zlib.decompress(found[b"IDAT"])) == (size[0] + 1) * size[1]
    assert len(found[b"PLTE"]) == 768


def test_parts_have_equal_shares_in_a_drawn_order() -> None:
    parts = [{"turns": 1}, {"turns": 3}]
    conversations = turns_of({"parts": parts}, 100, "s")
    turns = [turn for conversation in conversations for turn in conversation]
    assert Counter(turn.part for turn in turns) == {0: 50, 1: 50}
    assert [turn.part for turn in turns] != sorted(turn.part for turn in turns)
    assert turns_of({"parts": parts}, 100, "s") == conversations
    assert [conversation[0].conversation for conversation in conversations] == list(
        range(len(conversations))
    )
    assert all(conversation[-1].last for conversation in conversations)


def test_a_later_turn_has_all_before_it() -> None:
    part = {"input_tokens": 100, "output_tokens": 10, "prefix_tokens": 60}
    assert [input_tokens(part, turn) for turn in range(3)] == [100, 150, 200]


ANSWER = stream(*[token("a"), token('\\"choices\\":[{'), token("\\u00e9"), usage(3), "[DONE]"])


@settings(deadline=None)
@given(st.lists(st.integers(1, len(ANSWER)), max_size=12), st.booleans())
def test_it_does_not_matter_how_a_stream_is_cut(cuts: list[int], keep: bool) -> None:
    response = Response(keep=keep)
    places = sorted({0, *cuts, len(ANSWER)})
    for now, (start, end) in enumerate(pairwise(places)):
        assert not response.done
        response.feed(ANSWER[start:end], float(now))
    assert (response.done, response.error, response.reusable) == (True, "", True)
    assert len(response.times) == 3
    assert response.times == sorted(response.times)
    assert response.usage == {"prompt_tokens": 8, "completion_tokens": 3}
    assert "".join(response.texts) == ('a"choices":[{é' if keep else "")


def test_events_of_one_piece_are_all_read() -> None:
    first, rest = [token()], [token(), token(), usage(3), "[DONE]"]
    body = "".join(f"data: {event}\n\n" for event in rest).encode()
    data = stream(*first, last=False) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    response = Response()
    response.feed(data, 1.0)
    assert (response.error, response.times) == ("", [1.0] * 3)
    assert response.usage == {"prompt_tokens": 8, "completion_tokens": 3}


def test_comments_are_no_tokens_and_a_role_is_none() -> None:
    response = Response()
    role = '{"choices":[{"delta":{"role":"assistant","content":""}}]}'
    part = '{"choices":[{"delta":{"content":""}}]}'
    data = stream(role, part, part, usage(2), "[DONE]").replace(
        b"\r\n\r\n", b"\r\n\r\n9\r\n: ping\n\n\n\r\n", 1
    )
    response.feed(data, 1.0)
    assert (response.error, response.times) == ("", [1.0, 1.0])


def test_headers_before_the_answer_and_bodies_until_the_end() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 429 Slow\r\n\r\n", 0.0)
    response.feed(b'{"message":"slow down"}', 0.0)
    assert not response.done
    response.closed()
    assert (response.done, response.error, response.reusable) == (
        True,
        "HTTP 429: slow down",
        False,
    )


def test_arrivals_are_poissons_and_end_in_time():
    times = arrivals(10, 4000, "x")
    assert times[-1] == pytest.approx(400)
    gaps = [after - before for before, after in pairwise(times)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.1)


# Two sessions, one of three turns; 4 requests in 30 s and a mean gap more: 0.1 a second.
TRACE = [[0, 0.0, 100, 5], [1, 10.0, 50, 5], [0, 20.0, 160, 7], [0, 30.0, 40, 5]]


def test_a_trace_keeps_its_sessions_and_gaps_at_any_rate():
    def told(turns):
        return [one.traced for one in turns]

    first, second = replayed(TRACE, 4, 0.1)
    assert told(first) == [(0.0, 100, 5), (20.0, 160, 7), (30.0, 40, 5)]
    assert [one.last for one in first] == [False, False, True]
    assert told(second) == [(10.0, 50, 5)]
    hastened = replayed(TRACE, 6, 1.0)
    assert told(hastened[0])[1] == pytest.approx((2.0, 160, 7))
    # It begins again with sessions of its own.
    assert told(hastened[2]) == [pytest.approx((4.0, 100, 5))]
    assert [one[0].conversation for one in hastened] == [0, 1, 2, 3]
    assert turns_of({"trace": TRACE}, 4, "s", 0.1) == [first, second]
