"""Transfers as they come, and messages by their form, taken out by C and by Python side by side: for the fuzzer."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headwater.amqp.protocol.runs import transfers_any
from headwater.core.alike import alike_any

Transfers = Callable[[bytes, int, int, int, int, int, int], tuple[list[bytes], list[bytes], int] | None]
Alike = Callable[..., tuple[int, int] | None]


def fuzz_transfers(native: Transfers, seed: str, rounds: int) -> int:
    """Compare both over so many buffers of that seed, most often with one wrong byte; how many transfers were taken."""
    draw, taken = Random(seed), 0
    for _ in range(rounds):
        lead, tag_bytes, ending = (
            draw.randbytes(draw.randint(1, 16)),
            draw.choice([0, 1, 4, 32]),
            draw.randbytes(draw.randint(1, 5)),
        )
        id_at = 4 + len(lead)
        head_bytes = id_at + 6 + tag_bytes + len(ending)
        first = draw.choice([0, 1, 255, 2**31, 2**32 - 2])
        frames = []
        for each in range(draw.randint(1, 6)):
            mark, payload = bytes((0xA0, tag_bytes)), draw.randbytes(draw.choice([0, 1, 50]))
            id = ((first + each) & 0xFFFFFFFF).to_bytes(4)
            frames.append(
                (head_bytes + len(payload)).to_bytes(4)
                + lead
                + id
                + mark
                + draw.randbytes(tag_bytes)
                + ending
                + payload
            )
        at = draw.choice([0, 0, 3])
        buffer = bytearray(bytes(at) + b"".join(frames))
        if len(frames) > 1 and draw.random() < 0.7:
            place = draw.randrange(at + len(frames[0]), len(buffer))
            buffer[place] ^= 1 << draw.randrange(8)
        if draw.random() < 0.3:
            del buffer[draw.randrange(at + head_bytes, len(buffer) + 1) :]
        given = (
            bytes(buffer),
            at,
            id_at,
            tag_bytes,
            head_bytes,
            draw.choice([head_bytes + 50, head_bytes + 49, 2**31]),
            draw.choice([1, 2, 100]),
        )
        found = native(*given)
        assert found == transfers_any(*given), given
        taken += len(found[1])
    return taken


def fuzz_alike(native: Alike, seed: str, rounds: int) -> int:
    """Compare both over so many lists of messages of that seed, most often with one wrong byte; how many were taken."""
    draw, taken = Random(seed), 0
    for _ in range(rounds):
        head, tail, id_bytes = (
            draw.randbytes(draw.randint(0, 9)),
            draw.randbytes(draw.randint(0, 9)),
            draw.randint(0, 5),
        )
        size_bytes = draw.choice([1, 4])
        tail_at = len(head) + id_bytes
        content_at = tail_at + len(tail) + size_bytes
        messages = []
        for _ in range(draw.randint(0, 5)):
            content = draw.randbytes(draw.choice([0, 1, 255]))
            size = len(content).to_bytes(size_bytes)
            messages.append(head + draw.randbytes(id_bytes) + tail + size + content)
        if messages and draw.random() < 0.7:
            wrong = bytearray(messages.pop())
            wrong[draw.randrange(len(wrong))] ^= 1 << draw.randrange(8)
            messages.insert(
                draw.randint(0, len(messages)), bytes(wrong[: draw.choice([None, len(wrong) - 1, content_at - 1])])
            )
        rest_at, kept = draw.choice([0, content_at]), draw.choice([b"", b"kept"])
        bytes_max = draw.choice([content_at + 255, content_at + 254, 0, 1 << 20])
        at = draw.choice([0, len(messages)])
        given = messages, at, head, tail, tail_at, content_at, size_bytes, rest_at, kept, bytes_max
        one: tuple[list[bytes], list[bytes]] = [b"before"], []
        other: tuple[list[bytes], list[bytes]] = [b"before"], []
        assert native(*given, *one) == alike_any(*given, *other), given
        assert one == other
        taken += len(one[1])
    return taken
