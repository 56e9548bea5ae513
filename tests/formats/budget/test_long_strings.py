"""Long strings taken out and put back: the same events as by decoding all at once, and the same refusals."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from headwater.core.errors import InvalidInput, TooLarge
from headwater.core.event import Event
from headwater.core.loop.slices import Slices
from headwater.dcb.events import events_of
from headwater.dcb.wire import AppendIn
from headwater.formats import cloudevents, jsontext
from headwater.formats.budget import long_strings
from headwater.formats.budget.long_strings import shortened

_decoder = msgspec.json.Decoder(AppendIn)
ALPHABETS = (
    ["x", "é", "€", "😀", "\\\\", '\\"', "\\n", "\\u00e9", "\\ud83d\\ude00", "\\u0041", "}, {", ":[", "'"],
    ["\\\\"],
    ["\\ud83d\\ude00"],
    ["\\ud83d\\ude00", "\\\\"],
    ["\\\\", "ud83d", "\\ude00".replace("\\u", "u")],
    ['\\"', "x" * 9],
    ["😀"],
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings are long, and spans short, soon."""
    monkeypatch.setattr(long_strings, "LONG_BYTES", 200)
    monkeypatch.setattr(long_strings, "SPAN_BYTES", 23)
    monkeypatch.setattr(long_strings, "_SAMPLE_BYTES", 20)
    monkeypatch.setattr(long_strings, "_NEAR_BYTES", 13)
    monkeypatch.setattr(long_strings, "_QUOTES_MAX", 2)


def _all_at_once(body: bytes) -> list[Event]:
    return events_of(jsontext.decode(_decoder, body).events)


def _in_spans(body: bytes, bytes_max: int = 10**9) -> Sequence[Event]:
    async def read() -> Sequence[Event]:
        slices = Slices()
        short = await shortened(body, slices)
        if short is None:
            return _all_at_once(body)
        events = await short.restore(_all_at_once(short.text), slices, bytes_max)
        short.check_all_used()
        return events

    return asyncio.run(read())


def _body(*members: str) -> bytes:
    return ('{"events":[' + ",".join(f'{{"type":"t",{each}}}' for each in members) + "]}").encode()


@pytest.mark.parametrize("seed", range(280))
def test_events_are_the_same(seed: int) -> None:
    dice = random.Random(seed)
    alphabet = ALPHABETS[seed % len(ALPHABETS)]
    members = []
    for _ in range(dice.randint(1, 5)):
        if dice.random() < 0.3:
            content = base64.b64encode(dice.randbytes(dice.randint(0, 900))).decode()
            members.append(f'"data_base64":"{content}"')
        else:
            content = "".join(dice.choice(alphabet) for _ in range(dice.randint(0, 400)))
            members.append(f'"data":"{content}","id":"{dice.random()}"')
    body = _body(*members)
    assert _in_spans(body) == _all_at_once(body)


def test_a_long_string_is_taken_out() -> None:
    body = _body(f'"data":"{"x" * 5000}"')
    short = asyncio.run(shortened(body, Slices()))
    assert short is not None and len(short.text) < 100
    assert short.offset(len(short.text)) == len(body)


def test_short_strings_stay_where_they_are() -> None:
    assert asyncio.run(shortened(_body(*['"data":"xxxx"'] * 500), Slices())) is None


@pytest.mark.parametrize("text", ["\\ud83d", "\\ud83d\\u0041", "\\x", "\n", "\\u12"])
@pytest.mark.parametrize("place", [0, 22, 23, 300])
def test_what_is_no_string_is_refused_with_its_place(text: str, place: int) -> None:
    body = _body('"data":"' + "x" * place + text + "x" * (600 - place) + '"')
    with pytest.raises(InvalidInput):
        _all_at_once(body)
    with pytest.raises(jsontext.MalformedJson) as refused:
        _in_spans(body)
    assert abs(refused.value.offset - body.index(text.encode())) < 8


def test_what_is_no_utf_8_is_refused() -> None:
    body = _body('"data":"' + "x" * 300 + "MARK" + "x" * 300 + '"').replace(b"MARK", b"\xc3\xc3")
    with pytest.raises(jsontext.MalformedJson, match="UTF-8"):
        _in_spans(body)


@pytest.mark.parametrize("content", ["AAAA" * 50 + "=" + "AAA" * 50, "A" * 401, "!" * 400])
def test_what_is_no_base64_is_refused(content: str) -> None:
    with pytest.raises(InvalidInput, match="base64"):
        _in_spans(_body(f'"data_base64":"{content}"'))


@pytest.mark.parametrize(
    "member", ['"id":"LONG"', '"tags":["LONG"]', '"attributes":{"LONG":"x"}', '"data":"x","data":"LONG","data":"y"']
)
def test_nothing_but_data_is_so_long(member: str) -> None:
    with pytest.raises(InvalidInput, match="is too long"):
        _in_spans(_body(member.replace("LONG", "x" * 5000)))


def test_a_string_that_no_event_may_have_is_not_decoded() -> None:
    with pytest.raises(TooLarge):
        _in_spans(_body(f'"data":"{"x" * 5000}"'), 4000)


@pytest.mark.parametrize(
    "data", ["x" * 900, {"a": ["é" * 900, 1, {"b": "\n\"'" * 300}], "c": "y" * 199}, ["z" * 300] * 3]
)
@pytest.mark.parametrize("content_type", ["application/json", "text/plain", None])
def test_data_of_cloudevents_are_the_same(data: Any, content_type: str | None) -> None:
    more = {} if content_type is None else {"datacontenttype": content_type}
    document = {"specversion": "1.0", "type": "t", "source": "s", "id": "1", **more, "data": data}
    body = json.dumps(document, ensure_ascii=False).encode()

    async def read() -> Sequence[Event]:
        slices = Slices()
        short = await shortened(body, slices)
        assert short is not None
        events = await short.restore([cloudevents.event_from_json(short.text)], slices, 10**9)
        short.check_all_used()
        return events

    assert asyncio.run(read()) == [cloudevents.event_from_json(body)]
