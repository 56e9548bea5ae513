"""A connection that knows the heads of earlier answers reads the same from the same bytes as one that parses each."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.formats.clients.answer import KNOWN_MAX, Answer, KnownHeads, NotHttp
from tests.every import every
from tests.formats.clients.test_answer import cut

STATUSES = [
    b"200 OK",
    b"200 OK",
    b"200 OK",
    b"409 Conflict",
    b"201 ",
    b"204 No Content",
    b"304 Not Modified",
    b"100 Go",
]
LENGTHS = [b"content-length: %d"] * 6 + [b"Content-Length: %d", b"content-length:%d", b"content-length: 0%d"]
HEADS = [b"headwater-head: %d"] * 3 + [b"Headwater-Head: %d", b"headwater-head:  %d", b"x-headwater-head: %d"]
OTHERS = [
    *(b"date: Tue, 01 Dec 2026 04:23:32 GMT", b"content-type: a/b", b"headwater-incarnation: 863f", b"empty:"),
    *(b"connection: keep-alive", b"connection: close", b"upgrade: x", b"transfer-encoding: chunked"),
    *(b"x: content-length: 5", b"x: \r\n content-length: 5", b"x: y\ncontent-length: 5"),
]
INSERTED = [
    *(b"", b"0", b"7", b"999999999999999999999", b"-1", b" ", b"\t", b"\r", b"\n", b"\r\n", b":", b"x", b"\xff"),
    *(b"headwater-head: 7\r\n", b"headwater-head: \r\n", b"\r\nheadwater-head: 7", b"content-length: 2\r\n"),
    *(b"connection: close\r\n", b"transfer-encoding: chunked\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
]
NUMBERS = st.sampled_from([0, 7, 8, 10**18 - 1])
State = tuple[object, ...]


@st.composite
def shapes(draw: st.DrawFn) -> list[bytes]:
    """The lines of a head, with a place for the length, and perhaps one for the log's head, which mostly follows it."""
    lines = draw(st.lists(st.sampled_from(OTHERS), max_size=3))
    at = draw(st.integers(0, len(lines)))
    lines.insert(at, draw(st.sampled_from(LENGTHS)))
    if draw(st.booleans()):
        lines.insert(at + 1 if draw(st.integers(0, 3)) else at, draw(st.sampled_from(HEADS)))
    return [b"HTTP/1.1 " + draw(st.sampled_from(STATUSES)), *lines]


@st.composite
def connections(draw: st.DrawFn) -> list[list[bytes]]:
    """The answers of one connection, in pieces: mostly of one shape, some changed in a line or in a few bytes."""
    shape, answers = draw(shapes()), []
    for change in draw(st.lists(st.sampled_from(["nothing", "nothing", "line", "bytes"]), min_size=2, max_size=8)):
        lines, body = list(shape), draw(st.sampled_from([b"a", b"ab", b"a" * 12, b"", b"\r\n\r\n"]))
        if change == "line":
            at = draw(st.integers(0, len(lines) - 1))
            new = draw(st.lists(st.sampled_from([b"HTTP/1.1 204 X", *LENGTHS, *HEADS, *OTHERS]), max_size=1))
            lines[at : at + draw(st.integers(0, 1))] = new
        filled = [line.replace(b"%d", b"%d" % draw(NUMBERS)) if b"head" in line else line for line in lines]
        raw = b"\r\n".join([*filled, b"", b""]).replace(b"%d", b"%d" % len(body)) + body
        if change == "bytes":
            at, gone = draw(st.integers(0, len(raw))), draw(st.integers(0, 2))
            raw = raw[:at] + draw(st.sampled_from(INSERTED)) + raw[at + gone :]
        answers.append(cut(raw, draw(st.one_of(st.just([]), st.lists(st.integers(0, 400), max_size=3)))))
    return answers


def states(answer: Answer, pieces: list[bytes]) -> list[State]:
    """What an answer says after each piece, and at the end of the input."""
    said: list[State] = []
    try:
        for piece in pieces:
            answer.receive_data(piece)
            said.append(
                (
                    answer.status,
                    list(answer.fields.items()),
                    list(answer.pieces),
                    answer.is_complete,
                    answer.is_reusable,
                    answer.interim,
                )
            )
    except NotHttp as error:
        return [*said, (str(error),)]
    answer.receive_eof()
    return [*said, (answer.is_complete, answer.is_reusable)]


@given(connections())
def test_a_known_head_says_what_the_parser_says(answers: list[list[bytes]]) -> None:
    known = KnownHeads()
    for pieces in answers:
        assert states(Answer(known), pieces) == states(Answer(), pieces)
    assert len(known.all) <= KNOWN_MAX


def answer_of(length: bytes, head: bytes | None, body: bytes, start: bytes = b"200 OK\r\ndate: x") -> bytes:
    line = b"" if head is None else b"headwater-head: %b\r\n" % head
    return b"HTTP/1.1 %b\r\ncontent-length: %b\r\n%bx: y\r\n\r\n%b" % (start, length, line, body)


class Parsed(Exception):
    """The parser was asked."""


def refuse(answer: Answer) -> None:
    raise Parsed


@every(
    ("head", "raw", "is_known"),
    [
        (b"7", answer_of(b"3", b"9", b"abc"), True),
        (b"7", answer_of(b"0", b"999999999999999999", b""), True),
        (b"7", answer_of(b"003", b"9", b"abc"), True),
        (b"7", answer_of(b"3", b"9", b"abcd"), False),
        (b"7", answer_of(b"3", b"9", b"ab"), False),
        (b"7", answer_of(b"3", b"", b"abc"), False),
        (b"7", answer_of(b"3", b"9" * 19, b"abc"), False),
        (b"7", answer_of(b"3", b"9", b"abc", b"200 OK\r\ndate: y"), False),
        (b"7", answer_of(b"3", b"9", b"abc", b"204 OK\r\ndate: x"), False),
        (b"7", answer_of(b"3", b"9\r\nconnection: close", b"abc"), False),
        (None, answer_of(b"3", None, b"abc"), True),
        (None, answer_of(b"3", b"9", b"abc"), False),
        (b"7", answer_of(b"3", None, b"abc"), False),
        (b"7", answer_of(b"3", b"9", b"abc").replace(b"x: y", b"x: z"), False),
    ],
)
def test_only_two_numbers_may_differ_from_the_head_that_was_parsed(
    monkeypatch: pytest.MonkeyPatch, head: bytes | None, raw: bytes, is_known: bool
) -> None:
    known = KnownHeads()
    Answer(known).receive_data(answer_of(b"2", head, b"ab"))
    answer = Answer(known)
    with monkeypatch.context() as patched:
        patched.setattr(httptools, "HttpResponseParser", refuse)
        if not is_known:
            with pytest.raises(Parsed):
                answer.receive_data(raw)
            return
        answer.receive_data(raw)
    lines, _, body = raw.partition(b"\r\n\r\n")
    assert (answer.status, answer.body(), answer.is_complete, answer.is_reusable) == (200, body, True, True)
    assert answer.fields == dict(line.split(b": ") for line in lines.split(b"\r\n")[1:])


def test_the_parsed_answer_keeps_its_own_numbers() -> None:
    known = KnownHeads()
    first, second = Answer(known), Answer(known)
    first.receive_data(answer_of(b"2", b"7", b"ab"))
    second.receive_data(answer_of(b"3", b"8", b"abc"))
    assert (first.fields[b"headwater-head"], second.fields[b"headwater-head"]) == (b"7", b"8")


@every(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nab",
        b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: a\r\nx: b\r\n\r\nab",
        b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab",
    ],
)
def test_a_head_that_says_more_than_the_length_is_not_remembered(raw: bytes) -> None:
    known = KnownHeads()
    Answer(known).receive_data(raw)
    assert known.all == ()
