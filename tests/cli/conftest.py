import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.client.served_memory import ServedMemory

from headwater.cli import main
from headwater.client import RemoteLog, connect


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ServedMemory]:
    served = ServedMemory()
    monkeypatch.setenv("HEADWATER_URL", served.url)
    monkeypatch.chdir(tmp_path)
    yield served
    served.stop()


@pytest.fixture
def log(served: ServedMemory) -> Iterator[RemoteLog]:
    with connect(served.url, retry_s=0) as server:
        yield server.create("orders")


@pytest.fixture
def headwater(served: ServedMemory, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch):
    """Runs the command with those arguments, as the program does."""

    def run(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        code = main.run(arguments)
        out, err = capfdbinary.readouterr()
        return Outcome(code, out.decode(), err.decode())

    result: Callable[..., Outcome] = run
    return result
