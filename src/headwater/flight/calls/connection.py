"""One address of a server: Flight's client, the login, and errors translated to the core's."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from ...core.access import Unauthenticated
from ...core.errors import EventLogError, InvalidInput
from ...formats.clients.endpoints import Endpoint
from ...formats.clients.retry import ServerUnreachable
from ...formats.decoders import json_decoder
from ..errors import ServerFault, core_error_of
from ..wire import ActionShape, Answer, Body, encode
from .address import BulkAddress

T = TypeVar("T")

KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 310_000, 20_000
"""Ping a server that is silent for this long; gRPC servers punish pings more often than every 300 s."""
CONNECTS_WITHIN_MS = 10_000
"""How long a server may take to accept a connection: gRPC derives it from its minimum pause between attempts.

A refused connection is retried much sooner; a busy server could never be reached if this time were too short.
"""
ONE_OF_SEVERAL_CONNECTS_WITHIN_MS = 5_000
"""The same timeout, if there are other addresses to try."""


class FlightConnection(Endpoint):
    """A connection to one address. Thread-safe."""

    def __init__(self, address: BulkAddress, *, is_single: bool = True) -> None:
        """`address` names one server. Nothing is sent yet. `is_single`: whether there is no other address."""
        super().__init__(address.url)
        self.address = address
        self._connects_within_ms = CONNECTS_WITHIN_MS if is_single else ONE_OF_SEVERAL_CONNECTS_WITHIN_MS
        self._login = _Login(address.authorization)
        self._lock = threading.Lock()
        self._client: flight.FlightClient | None = None
        self.is_closed = False
        """Whether further calls are refused."""

    def client(self) -> flight.FlightClient:
        """Flight's own client, connected when it is first used. Raises ServerUnreachable when closed."""
        with self._lock:
            if self.is_closed:
                raise ServerUnreachable(self.url, "this client was closed")
            if self._client is None:
                self._client = self._connect()
            return self._client

    def close(self) -> None:
        """Close the connection and refuse further calls."""
        with self._lock:
            client, self._client, self.is_closed = self._client, None, True
        if client is not None:
            client.close()

    @property
    def session(self) -> str | None:
        """The session in use."""
        return self._login.session

    def log_in_again(self, session: str) -> bool:
        """Drop an expired session. Returns whether another attempt makes sense."""
        return self._login.drop(session)

    def options(self, *, is_stream: bool = False) -> flight.FlightCallOptions:
        """The options of each call. Streams have no deadline."""
        return flight.FlightCallOptions(timeout=None if is_stream else self.address.timeout_s)

    def act(
        self, shape: ActionShape[Body, Answer], body: Body, options: flight.FlightCallOptions | None = None
    ) -> Answer:
        """The answer to an action. Raises Flight's errors and ServerFault."""
        action = flight.Action(shape.name, encode(body))
        results = list(self.client().do_action(action, options or self.options()))
        return decoded(shape.answer, results[0].body.to_pybytes() if results else b"")

    def error_of(self, error: BaseException) -> EventLogError:
        """The core's error that a Flight error represents."""
        if isinstance(error, EventLogError):
            return error
        if isinstance(error, flight.FlightError) and (known := core_error_of(error)) is not None:
            return known
        text = str(error).partition(". gRPC client debug context")[0]
        if isinstance(error, flight.FlightUnavailableError | flight.FlightTimedOutError | flight.FlightCancelledError):
            return ServerUnreachable(self.url, text)
        if isinstance(error, flight.FlightUnauthenticatedError):
            return Unauthenticated(text)
        if isinstance(error, pa.ArrowInvalid) and not isinstance(error, flight.FlightError):
            return InvalidInput(text)
        return ServerFault(text)

    def _connect(self) -> flight.FlightClient:
        address = self.address
        try:
            return flight.FlightClient(
                address.location,
                tls_root_certs=address.ca_bytes(),
                disable_server_verification=address.is_tls and not address.is_verified,
                middleware=[self._login],
                generic_options=[
                    ("grpc.initial_reconnect_backoff_ms", 100),
                    ("grpc.min_reconnect_backoff_ms", self._connects_within_ms),
                    ("grpc.max_reconnect_backoff_ms", 2000),
                    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
                ],
            )
        except pa.ArrowException as error:
            raise InvalidInput(str(error), "url") from None


def decoded(kind: type[T], text: bytes) -> T:
    """Decode the server's answer. Raises ServerFault if it cannot be decoded."""
    try:
        return json_decoder(kind).decode(text)
    except msgspec.MsgspecError as error:
        raise ServerFault(f"cannot parse the answer: {error}") from None


class _Login(flight.ClientMiddlewareFactory):  # type: ignore[misc]
    """Sends the password until the server returns a session token, and then sends the token."""

    def __init__(self, authorization: str | None) -> None:
        self._authorization = authorization
        self.session: str | None = None

    def start_call(self, info: flight.CallInfo) -> flight.ClientMiddleware:
        """Called by Flight."""
        return _Showing(self, self.session or self._authorization)

    def drop(self, session: str) -> bool:
        """Forget a session to log in again. Returns whether that makes sense."""
        if self.session == session:
            self.session = None
        return self._authorization is not None

    def took(self, session: str) -> None:
        """Keep the session that the server returned."""
        if self._authorization is not None and self._authorization.startswith("Basic "):
            self.session = session


class _Showing(flight.ClientMiddleware):  # type: ignore[misc]
    def __init__(self, login: _Login, shown: str | None) -> None:
        self._login, self._shown = login, shown
        self._given: str | None = None

    def sending_headers(self) -> Mapping[str, str]:
        return {} if self._shown is None else {"authorization": self._shown}

    def received_headers(self, headers: Mapping[str, Sequence[str]]) -> None:
        for name, values in headers.items():
            if name.lower() == "authorization" and values and values[0].startswith("Bearer "):
                self._given = values[0]

    def call_completed(self, exception: BaseException | None) -> None:
        # The server sends a token before it checks the password; the token is valid only if the password was right.
        if self._given is not None and exception is None:
            self._login.took(self._given)
