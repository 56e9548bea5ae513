import pytest

from headwater.client.protocol.follow import EventStreamParser, Follower, Message
from headwater.client.protocol.routes import LogRoutes
from headwater.core import Query

STREAM = b'id: 3\ndata: {"a":1}\n\n: heartbeat\nid: 9\n\nid:10\ndata:x\n\n'
MESSAGES = [Message(3, b'{"a":1}'), Message(9, b""), Message(10, b"x")]


def test_blocks_become_messages() -> None:
    assert EventStreamParser().receive_data(STREAM) == MESSAGES


def test_a_stream_may_come_byte_by_byte() -> None:
    parser = EventStreamParser()
    messages = [message for byte in STREAM for message in parser.receive_data(bytes([byte]))]
    assert messages == MESSAGES


@pytest.mark.parametrize(
    ("piece", "is_alive"),
    [
        (b": heartbeat\nid: 3\n\n", True),
        (b"id: 3\n\n: wait", True),
        (b"id: 3\nda", False),
        (b"id: 3\ndata: {", True),
        (b"id: 3\ndata: {\n: wait", False),
        (b": data: wait", False),
        (b"retry: 1000\n\n", False),
        (b": wait\n\n: wait\n\n", False),
        (b": wait\r\n: wait\r\n", False),
    ],
)
def test_a_number_is_a_sign_of_life_and_so_is_data_that_goes_on(piece: bytes, is_alive: bool) -> None:
    follower = Follower(LogRoutes("a"), Query.all(), 0, None, 60.0)
    follower.follow(0)
    assert follower.receive_data(0, piece) == (3 if b"id: 3\n\n" in piece else 0, [])
    assert follower.is_alive == is_alive


@pytest.mark.parametrize(
    ("timeout_s", "heartbeat", "silence_s"),
    [(60.0, "", 60.0), (45.0, "", 45.0), (30.0, "&heartbeat=10", 30.0), (0.5, "&heartbeat=1", 3.0)],
)
def test_it_asks_for_heartbeats_that_fit_its_patience(timeout_s: float, heartbeat: str, silence_s: float) -> None:
    follower = Follower(LogRoutes("a"), Query.all(), 0, None, timeout_s)
    assert follower.follow(0).route.path == f"/logs/a/subscribe?query=%7B%22all%22%3Atrue%7D&after=0{heartbeat}"
    assert follower.silence_s == silence_s
    assert [follower.may_wait_longer(), follower.may_wait_longer()] == [silence_s < 20, False]
    assert follower.silence_s == max(silence_s, 20.0)
