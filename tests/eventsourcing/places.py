"""The places at which a log may be, each as the value of HEADWATER_URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.client.served_memory import ServedMemory

Place = Callable[[], AbstractContextManager[str]]


@contextmanager
def memory() -> Iterator[str]:
    yield "memory:"


@contextmanager
def engine() -> Iterator[str]:
    with TemporaryDirectory() as directory:
        yield Path(directory, "data").as_uri()


@contextmanager
def server() -> Iterator[str]:
    served = ServedMemory()
    try:
        yield served.url
    finally:
        served.stop()


PLACES: dict[str, Place] = {"memory": memory, "engine": engine, "server": server}
