"""Answers: the quick reading and the parser agree, however an answer comes in pieces."""

from __future__ import annotations

import itertools

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client import answer as answers
from headwater.client.answer import Answer, NotHttp

NAMES = [
    "content-type",
    "Headwater-Head",
    "date",
    "x-a",
    "Connection",
    "transfer-encoding",
    "Content-Length",
    "trailer",
]
VALUES = ["", "a", "17", "a b", " led", "keep-alive", "close", "chunked", "0", "5", "1" * 16, "tab\tbed", "\xe4"]
fields = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=4)
plain_fields = st.lists(
    st.tuples(st.sampled_from(["date", "Headwater-Head", "x-a", "connection-x"]), st.sampled_from(["a", "17", "a b"])),
    max_size=4,
)
bodies = st.binary(max_size=60)


@st.composite
def raw_answers(draw: st.DrawFn) -> bytes:
    """Every other one plain but for what its fields happen to be."""
    is_odd = draw(st.booleans())
    body, chosen = draw(bodies), draw(fields if is_odd else plain_fields)
    if not is_odd or draw(st.integers(0, 3)):
        name = draw(st.sampled_from(["content-length", "Content-Length"]))
        chosen.insert(draw(st.integers(0, len(chosen))), (name, str(len(body))))
    statuses = ["200 OK", "201 Created", "409 Conflict", "503 "]
    status = draw(st.sampled_from([*statuses, "204 No Content", "304 X", "100 Go"] if is_odd else statuses))
    version = draw(st.sampled_from(["1.1", "1.0"] if is_odd else ["1.1"]))
    spaces = st.sampled_from([" ", "", "  "] if is_odd else [" "])
    head = "".join(f"{name}:{draw(spaces)}{value}\r\n" for name, value in chosen)
    surplus = draw(st.sampled_from([b"", b"", b"", b"more", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]))
    return f"HTTP/{version} {status}\r\n{head}\r\n".encode("latin-1") + body + surplus


def read(pieces: list[bytes]) -> Answer | str:
    answer = Answer()
    try:
        for piece in pieces:
            answer.receive_data(piece)
    except NotHttp as error:
        return str(error)
    return answer


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted({place % (len(raw) + 1) for place in places}), len(raw)]
    return [raw[start:end] for start, end in itertools.pairwise(bounds) if end > start]


def as_parser_reads(pieces: list[bytes]) -> Answer | str:
    answer = Answer()
    answer._parser = answers._Parser(answer)
    try:
        for piece in pieces:
            answer.receive_data(piece)
    except NotHttp as error:
        return str(error)
    return answer


@given(raw_answers(), st.lists(st.integers(0, 400), max_size=4))
def test_the_quick_reading_and_the_parser_agree(raw: bytes, places: list[int]) -> None:
    quick, full = read(cut(raw, places)), as_parser_reads(cut(raw, places))
    if isinstance(quick, str) or isinstance(full, str):
        assert quick == full
        return
    assert (quick.status, quick.fields, quick.is_complete) == (full.status, full.fields, full.is_complete)
    assert quick.body() == full.body()
    assert not quick.is_reusable or full.is_reusable


@given(raw_answers(), st.lists(st.integers(0, 400), max_size=4))
def test_how_an_answer_is_cut_changes_nothing(raw: bytes, places: list[int]) -> None:
    whole, cut_up = read([raw]), read(cut(raw, places))
    if isinstance(whole, Answer) and isinstance(cut_up, Answer):
        assert (whole.status, whole.fields, whole.body()) == (cut_up.status, cut_up.fields, cut_up.body())
        assert whole.is_complete == cut_up.is_complete
    else:
        assert isinstance(whole, str) == isinstance(cut_up, str)


def test_a_plain_answer_needs_no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(httptools, "HttpResponseParser", made.append)
    answer = Answer()
    answer.receive_data(b"HTTP/1.1 200 OK\r\nHeadwater-Head: 7\r\ncontent-length: 4\r\n\r\nab")
    assert (answer.status, answer.is_complete, answer.fields[b"headwater-head"]) == (200, False, b"7")
    answer.receive_data(b"cd")
    assert (answer.body(), answer.is_complete, answer.is_reusable, made) == (b"abcd", True, True, [])


@pytest.mark.parametrize("surplus", [b"x", b"HTTP/1.1 200 OK\r\n"])
@pytest.mark.parametrize("fields", [b"content-length: 2\r\n", b"content-length: 2\r\nconnection: keep-alive\r\n"])
def test_a_connection_with_more_on_it_than_its_answer_carries_no_other(fields: bytes, surplus: bytes) -> None:
    answer = Answer()
    answer.receive_data(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\nab" + surplus)
    assert (answer.body(), answer.is_complete, answer.is_reusable) == (b"ab", True, False)


def test_an_interim_answer_is_passed_over() -> None:
    answer = Answer()
    answer.receive_data(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
    assert answer.status == 0
    answer.receive_data(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na")
    assert (answer.status, answer.fields, answer.body()) == (200, {b"content-length": b"1"}, b"a")
