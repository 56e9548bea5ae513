"""When a read is whole, and when it is not: what its answers say of that, and nothing else."""

from __future__ import annotations

import pytest

from headwater.client.protocol.pages import PagedRead
from headwater.client.protocol.problems import UnexpectedAnswer
from headwater.client.protocol.routes import LogRoutes
from headwater.client.protocol.terms import ConnectionLost
from headwater.client.protocol.wire import ReadBody
from headwater.core import Event
from headwater.core.event import SequencedEvent
from headwater.formats import packed
from headwater.formats.clients.answer import Answer

HEAD = 4
WITH_END = "application/vnd.msgpack;end=page"


def page(*numbers: int) -> bytes:
    return packed.encode_page([SequencedEvent(each, 0, 0, *Event("A", id=str(each))) for each in numbers])


def begun(content_type: str, length: str = "transfer-encoding: chunked", **asked: int) -> PagedRead:
    """A read whose first answer has that head."""
    read = PagedRead(LogRoutes("orders"), ReadBody({"all": True}, **asked))
    again(read, content_type, length)
    return read


def again(read: PagedRead, content_type: str, length: str = "transfer-encoding: chunked") -> None:
    answer = Answer()
    head = f"content-type: {content_type}\r\nheadwater-head: {HEAD}\r\nheadwater-incarnation: a\r\n{length}"
    answer.receive_data(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
    read.begin(answer)


def test_an_empty_page_ends_a_read_in_whatever_pieces_it_comes() -> None:
    whole = page(1, 2) + page(3) + packed.END
    for size in range(1, len(whole) + 1):
        read, numbers = begun(WITH_END), []
        for start in range(0, len(whole), size):
            assert not read.has_ended
            numbers += [each.sequence_number for each in read.receive_data(whole[start : start + size])]
        assert (numbers, read.has_ended, read.receive_end()) == ([1, 2, 3], True, True)


@pytest.mark.parametrize("length", ["transfer-encoding: chunked", "content-length: 9"])
@pytest.mark.parametrize("body", [b"", page(1, 2, 3, 4), page(1) + packed.END[:-1]])
def test_an_answer_that_said_that_it_has_an_end_and_has_none_broke_off(length: str, body: bytes) -> None:
    read = begun(WITH_END, length)
    read.receive_data(body)
    assert not read.has_ended
    with pytest.raises(ConnectionLost, match="was cut off before its end"):
        read.receive_end()


@pytest.mark.parametrize("content_type", [
    "application/vnd.msgpack; end=page", 'application/vnd.msgpack;charset=utf-8 ; End="page"', WITH_END.upper(),
])  # fmt: skip
def test_a_media_type_is_the_same_in_any_spelling(content_type: str) -> None:
    with pytest.raises(ConnectionLost, match="was cut off before its end"):
        begun(content_type, "content-length: 0").receive_end()


def test_a_length_does_not_prove_that_an_answer_without_its_end_is_whole() -> None:
    read = begun(packed.MEDIA_TYPE, "content-length: 9")
    read.receive_data(page(1, 2))
    assert not read.receive_end()
    assert b'"after":2' in read.request().body
    again(read, "application/json")
    read.receive_data(b"[]")
    assert read.receive_end()


def doubted(**asked: int) -> PagedRead:
    """A read whose first answer brought nothing and said nothing of its length: whether anything is left is asked."""
    read = begun(packed.MEDIA_TYPE, **asked)
    assert not read.receive_end()
    assert (read.request().route.accept, b'"limit":1' in read.request().body) == ("application/json", True)
    again(read, "application/json")
    return read


@pytest.mark.parametrize("array", [b"[]", b'[{"sequence_number": 5}]'], ids=["nothing", "behind the head"])
def test_a_server_of_earlier_versions_proves_by_an_array_that_nothing_is_left(array: bytes) -> None:
    read = doubted()
    for byte in array:
        assert not read.receive_data(bytes([byte]))
    assert read.receive_end()


@pytest.mark.parametrize("array", [b"", b"[", b'[{"sequence_number": 5}'])
def test_an_array_that_broke_off_proves_nothing(array: bytes) -> None:
    read = doubted()
    read.receive_data(array)
    with pytest.raises(ConnectionLost, match="its array is not closed"):
        read.receive_end()
    again(read, "application/json")
    read.receive_data(b"[]")
    assert read.receive_end()


@pytest.mark.parametrize("array", [b"{}", b"[1]"])
def test_something_else_is_no_proof(array: bytes) -> None:
    read = doubted()
    read.receive_data(array)
    with pytest.raises(UnexpectedAnswer):
        read.receive_end()


def test_what_is_left_is_asked_for_and_a_second_answer_without_it_is_an_error() -> None:
    read = doubted()
    read.receive_data(b'[{"sequence_number": 2}]')
    assert not read.receive_end()
    assert b"limit" not in read.request().body
    again(read, packed.MEDIA_TYPE)
    with pytest.raises(ConnectionLost, match=r"upgrade the server to 0\.2\.0, have gateways pass"):
        read.receive_end()
    again(read, packed.MEDIA_TYPE)
    read.receive_data(page(2))
    assert not read.receive_end(), "it brought something meanwhile, so that this is asked again"


@pytest.mark.parametrize("content_type", [WITH_END, packed.MEDIA_TYPE])
def test_a_read_is_over_with_its_limit_and_behind_its_head(content_type: str) -> None:
    limited = begun(content_type, limit=2)
    limited.receive_data(page(1, 2))
    assert limited.receive_end()
    read = begun(content_type)
    assert [each.sequence_number for each in read.receive_data(page(3, 4, 5))] == [3, 4]
    assert read.has_ended


def test_nothing_follows_the_end() -> None:
    read = begun(WITH_END)
    read.receive_data(packed.END)
    with pytest.raises(UnexpectedAnswer, match="a page follows the empty last page"):
        read.receive_data(page(1))


@pytest.mark.parametrize("body", [page(1, 2) + page(1, 2), page(1, 2) + page(3) + page(3)], ids=["first", "last"])
def test_a_page_that_comes_twice_is_no_answer(body: bytes) -> None:
    for size in (len(body), len(page(1, 2)), 1):
        read = begun(WITH_END)
        with pytest.raises(UnexpectedAnswer, match="a page was repeated"):
            for start in range(0, len(body), size):
                read.receive_data(body[start : start + size])


def test_pages_go_on_in_the_order_of_the_read() -> None:
    read = begun(WITH_END, backwards=True)
    assert len(read.receive_data(page(4, 3))) == 2
    with pytest.raises(UnexpectedAnswer, match="event 3 comes after 3"):
        read.receive_data(page(3, 2))
    for asked in ({"after": 2}, {"from_": 3}):
        assert begun(WITH_END, **asked).receive_data(page(3))
        with pytest.raises(UnexpectedAnswer, match=r"event 2 comes after 2: .*belongs to another read"):
            begun(WITH_END, **asked).receive_data(page(2))


@pytest.mark.parametrize(("content_type", "body", "length", "told"), [
    pytest.param(
        "application/x-ndjson", b'{"sequence_number":1}', "", "application/x-ndjson: a gateway", id="NDJSON",
    ),
    pytest.param(
        WITH_END, b"\x1f\x8b\x08\0\0", "content-encoding: gzip\r\n", "compressed by gzip: a gateway", id="gzip",
    ),
])  # fmt: skip
def test_another_form_than_was_asked_for_is_named(content_type: str, body: bytes, length: str, told: str) -> None:
    read = begun(content_type, f"{length}transfer-encoding: chunked")
    with pytest.raises(UnexpectedAnswer, match=f"expected .*end=page, got .*{told}"):
        read.receive_data(body)


def test_a_compressed_array_is_named_too() -> None:
    read = begun("application/vnd.msgpack")
    read.receive_data(page(1, 2, 3, 4))
    assert not read.receive_end()
    again(read, "application/json", "content-encoding: gzip\r\ntransfer-encoding: chunked")
    read.receive_data(b"\x1f\x8b\x08\0\0")
    with pytest.raises(UnexpectedAnswer, match="expected application/json, got application/json compressed by gzip"):
        read.receive_end()
