"""Runs operations of a client, and reads what it tells."""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import threading
import time
from typing import Any

from .runtimes import Runtime

OPERATION_S_MAX = 30.0
START_S_MAX = 20.0
"""A JVM on a busy machine takes its time."""


class Answer:
    """The lines that a client has written, in order."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.events = events

    def all(self, name: str) -> list[dict[str, Any]]:
        """The events of that name."""
        return [event for event in self.events if event["event"] == name]

    def one(self, name: str) -> dict[str, Any]:
        """The only event of that name."""
        found = self.all(name)
        assert len(found) == 1, f"{len(found)} x {name} in {self.told}"
        return found[0]

    @property
    def error(self) -> dict[str, Any] | None:
        """The error of the peer, if there was one."""
        found = self.all("error")
        return found[0] if found else None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages received, types of values forgotten."""
        return [plain(message) for message in self.all("message")]

    @property
    def told(self) -> str:
        """Everything, for a failed assertion."""
        return "\n".join(json.dumps(event)[:500] for event in self.events)


class Running:
    """A client at work; a context manager that ends it."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._complaints = ""
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._read_complaints)]
        for thread in self._threads:
            thread.start()
        self.answer = Answer([])

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def wait_for(self, name: str, timeout_s: float = OPERATION_S_MAX) -> dict[str, Any]:
        """The next event of that name; it fails if the client ends before."""
        deadline = time.monotonic() + START_S_MAX + timeout_s
        while True:
            event = self._next(deadline)
            assert event is not None, f"the client ended without {name!r}: {self.answer.told}\n{self._complaints}"
            if event["event"] == name:
                return event

    def end(self) -> Answer:
        """Wait until it has ended by itself; all that it told."""
        deadline = time.monotonic() + START_S_MAX + OPERATION_S_MAX
        while self._next(deadline) is not None:
            pass
        code = self._process.wait()
        has_ended = self.answer.events and self.answer.events[-1]["event"] == "done"
        assert code == 0 and has_ended, f"exit code {code}: {self.answer.told}\n{self._complaints}"
        return self.answer

    def kill(self) -> None:
        """End it the hard way: the connection breaks without a word."""
        self._process.kill()
        self._process.wait()

    def _next(self, deadline: float) -> dict[str, Any] | None:
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"the client is silent: {self.answer.told}\n{self._complaints}") from None
        if line is None:
            return None
        event: dict[str, Any] = json.loads(line)
        self.answer.events.append(event)
        return event

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_complaints(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._complaints += line


class Client:
    """A client library, to be driven by the contract in README.md against one server."""

    def __init__(self, runtime: Runtime, url: str) -> None:
        self._runtime = runtime
        self.name = runtime.name
        self.url = url

    def start(self, operation: str, address: str | None = None, **request: Any) -> Running:
        """Start an operation."""
        asked = {"url": self.url, "timeout_s": OPERATION_S_MAX - 5, **request}
        if operation not in ("connect", "unsubscribe"):
            asked["address"] = address
        return Running([*self._runtime.command(), operation, json.dumps(asked)])

    def run(self, operation: str, address: str | None = None, **request: Any) -> Answer:
        """Run an operation to its end."""
        with self.start(operation, address, **request) as running:
            return running.end()

    def send(self, address: str | None, *messages: dict[str, Any], **request: Any) -> Answer:
        """Send these messages."""
        return self.run("send", address, messages=list(messages), **request)

    def request(self, address: str, *messages: dict[str, Any], **request: Any) -> Answer:
        """Send these requests, and receive their answers."""
        return self.run("request", address, messages=list(messages), **request)

    def receive(self, address: str, count: int, **request: Any) -> Answer:
        """Receive so many messages."""
        return self.run("receive", address, count=count, **request)


def data(text: str, **more: Any) -> dict[str, Any]:
    """A message with one data section."""
    return {"data": base64.b64encode(text.encode()).decode(), **more}


def texts(messages: list[dict[str, Any]]) -> list[str]:
    """The data of messages received, as text."""
    return [base64.b64decode(message["data"]).decode() for message in messages]


def plain(value: Any) -> Any:
    """A value without what tells its AMQP type: not every client keeps that."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        if len(value) == 1 and next(iter(value)).startswith("$"):
            return plain(next(iter(value.values())))
        return {name: plain(item) for name, item in value.items()}
    return value


def symbol(text: str) -> dict[str, str]:
    """A symbol in a request."""
    return {"$symbol": text}
