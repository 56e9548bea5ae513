"""Answers: what they say, where they end, and that it changes nothing how they come in pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.formats.clients.answer import Answer, NotHttp
from tests.every import every

NAMES = [
    "content-type",
    "Headwater-Head",
    "date",
    "x-a",
    "Connection",
    "transfer-encoding",
    "Content-Length",
    "trailer",
    "connection: keep-alive\r\nx-b",
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
    """Every other one as servers send it, but for what its fields happen to be."""
    is_odd = draw(st.booleans())
    body, chosen = draw(bodies), draw(fields if is_odd else plain_fields)
    if not is_odd or draw(st.integers(0, 3)):
        name = draw(st.sampled_from(["content-length", "Content-Length"]))
        chosen.insert(draw(st.integers(0, len(chosen))), (name, str(len(body))))
    statuses = ["200 OK", "201 Created", "409 Conflict", "503 ", "204 No Content", "204 "]
    status = draw(st.sampled_from([*statuses, "304 X", "100 Go", "101 Up"] if is_odd else statuses))
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


@given(raw_answers(), st.lists(st.integers(0, 400), max_size=4))
def test_how_an_answer_is_cut_changes_nothing(raw: bytes, places: list[int]) -> None:
    whole, cut_up = read([raw]), read(cut(raw, places))
    if isinstance(whole, Answer) and isinstance(cut_up, Answer):
        assert (whole.status, whole.fields, whole.body()) == (cut_up.status, cut_up.fields, cut_up.body())
        assert whole.is_complete == cut_up.is_complete
    else:
        assert isinstance(whole, str) == isinstance(cut_up, str)


@pytest.mark.parametrize("surplus", [b"x", b"HTTP/1.1 200 OK\r\n"])
@pytest.mark.parametrize("fields", [b"content-length: 2\r\n", b"content-length: 2\r\nconnection: keep-alive\r\n"])
def test_a_connection_with_more_on_it_than_its_answer_carries_no_other(fields: bytes, surplus: bytes) -> None:
    answer = Answer()
    answer.receive_data(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\nab" + surplus)
    assert (answer.body(), answer.is_complete, answer.is_reusable) == (b"ab", True, False)


@pytest.mark.parametrize("fields", [b"", b"date: x\r\nConnection: keep-alive\r\n", b"content-length: 0\r\ndate: x\r\n"])
def test_an_answer_without_content_ends_with_its_head(fields: bytes) -> None:
    answer = Answer()
    answer.receive_data(b"HTTP/1.1 204 No Content\r\n" + fields + b"\r\n")
    assert (answer.status, answer.is_complete, answer.is_reusable, answer.body()) == (204, True, True, b"")
    assert (b"date" in answer.fields) == (b"date" in fields)


@every(
    ("raw", "status", "body", "is_complete", "is_complete_at_eof", "is_reusable"),
    [
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", 204, b"", True, True, True),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b"", True, True, True),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil", 200, b"until", False, True, False),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil", 200, b"until", False, True, False),
        (b"HTTP/1.1 100 Go\r\ncontent-length: 3\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx", 200, b"x", False, True, False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", 200, b"ab", False, False, False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nab", 200, b"ab", True, True, False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", 200, b"ab", False, False, False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", 200, b"ab", True, True, True),
        (b"HTTP/1.1 200 OK\r\nx: y\r\n", 0, b"", False, False, False),
        (b"HTTP/1.1 100 Go\r\n\r\n", 0, b"", False, False, False),
    ],
)
@every("is_whole", [True, False])
def test_where_an_answer_ends(
    raw: bytes,
    status: int,
    body: bytes,
    is_complete: bool,
    is_complete_at_eof: bool,
    is_reusable: bool,
    is_whole: bool,
) -> None:
    answer = Answer()
    for piece in [raw] if is_whole else [raw[at : at + 1] for at in range(len(raw))]:
        answer.receive_data(piece)
    assert (answer.status, answer.is_complete, answer.is_reusable) == (status, is_complete, is_reusable)
    answer.receive_eof()
    assert (answer.is_complete, answer.body()) == (is_complete_at_eof, body)


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01",
        b"HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx",
        b"HTTP/2 200\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_refused(raw: bytes) -> None:
    with pytest.raises(NotHttp):
        Answer(is_lenient=True).receive_data(raw)


def test_lines_that_end_with_lf_are_for_the_lenient() -> None:
    raw = b"HTTP/1.1 200 OK\ncontent-length: 1\n\na"
    answer = Answer(is_lenient=True)
    answer.receive_data(raw)
    assert (answer.status, answer.is_complete, answer.body()) == (200, True, b"a")
    with pytest.raises(NotHttp):
        Answer().receive_data(raw)


def test_an_interim_answer_is_passed_over() -> None:
    answer = Answer()
    answer.receive_data(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
    assert (answer.status, answer.interim) == (0, 1)
    answer.receive_data(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na")
    assert (answer.status, answer.fields, answer.body()) == (200, {b"content-length": b"1"}, b"a")
