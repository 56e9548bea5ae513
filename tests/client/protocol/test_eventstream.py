from headwater.client.protocol.follow import EventStreamParser, Message

STREAM = b'id: 3\ndata: {"a":1}\n\n: heartbeat\nid: 9\n\nid:10\ndata:x\n\n'
MESSAGES = [Message(3, b'{"a":1}'), Message(9, b""), Message(10, b"x")]


def test_blocks_become_messages() -> None:
    assert EventStreamParser().receive_data(STREAM) == MESSAGES


def test_a_stream_may_come_byte_by_byte() -> None:
    parser = EventStreamParser()
    messages = [message for byte in STREAM for message in parser.receive_data(bytes([byte]))]
    assert messages == MESSAGES
