"""Decoders that several threads ask for at once, for the first time."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headwater
from headwater.formats.decoders import json_decoder, msgpack_decoder

SOURCE = Path(headwater.__file__).parent
THREADS = 4
FORMS = [(json_decoder, msgspec.json.encode), (msgpack_decoder, msgspec.msgpack.encode)]


@pytest.fixture
def switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize(
    ("decoder", "encode"), [(json_decoder, msgspec.json.encode), (msgpack_decoder, msgspec.msgpack.encode)]
)
def test_threads_that_begin_at_once_have_one_decoder(decoder: Any, encode: Any) -> None:
    text = encode({"inner": {"x": 1}, "many": {"k": {"x": 2}}})
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(300):
            inner = msgspec.defstruct("Inner", [("x", int)])
            outer = msgspec.defstruct("Outer", [("inner", inner), ("many", dict[str, inner])])
            barrier = threading.Barrier(THREADS)

            def decode(kind: Any = outer, barrier: threading.Barrier = barrier) -> Any:
                barrier.wait()
                return decoder(kind).decode(text)

            found = [each.result() for each in [pool.submit(decode) for _ in range(THREADS)]]
            assert found == [outer(inner(1), {"k": inner(2)})] * THREADS
            assert decoder(outer) is decoder(outer)


def test_what_the_engine_decodes_has_a_decoder_that_one_thread_made() -> None:
    anew = re.compile(r"msgspec\.(json|msgpack)\.decode\(.*type=(?!dict\b)")
    rooms = [path for room in ("storage", "flight", "cne", "client") for path in (SOURCE / room).rglob("*.py")]
    found = [path.relative_to(SOURCE).as_posix() for path in rooms if anew.search(path.read_text(encoding="utf-8"))]
    assert sorted(found) == ["client/protocol/problems.py", "flight/errors.py"]  # those are dicts, by another name
