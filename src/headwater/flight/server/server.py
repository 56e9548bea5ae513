"""The Flight server: authenticates and authorizes each call and maps errors; sibling modules do the work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pyarrow.flight as flight

from ...core.access import Right, Unauthenticated, User
from ...core.errors import Closed, InvalidInput, LogNotFound, NotPrimary
from ...core.limits import show
from ...core.shared_bytes import SharedBytes
from ..errors import Told, flight_error_of
from ..schemas import schema_of
from ..wire import ACTIONS, PlanCommand, PutCommand, Ticket, check_size, decode
from . import actions, reads, writes
from .authentication import MIDDLEWARE, Callers, NoHandshake, address_of
from .backend import Backend
from .limits import StreamLimits, StreamPlaces
from .memory import MEMORY_BYTES_MAX, ReadMemory
from .sessions import Sessions

T = TypeVar("T")


class BulkServer(flight.FlightServerBase):  # type: ignore[misc]
    """Arrow Flight for the logs of a backend. It serves from construction on, on gRPC's threads.

    `location` is `grpc://HOST:PORT` (port 0: any; see `port`), or `grpc+tls://` with a certificate and its key (PEM).
    Call `stop` when done.
    """

    def __init__(
        self,
        backend: Backend,
        location: str = "grpc://127.0.0.1:0",
        *,
        certificate: bytes | None = None,
        key: bytes | None = None,
        limits: StreamLimits | None = None,
        address_of: Callable[[str], str] = address_of,
        memory: SharedBytes | None = None,
        took: Callable[[str], None] = lambda peer: None,
    ) -> None:
        """`memory` is the memory budget of the streams (None: 256 MiB). `address_of` maps gRPC's name of a peer to the
        client's address. `took` is called with that name for each accepted call of a user and each accepted batch.
        """
        limits = limits or StreamLimits()
        self._backend, self._address_of, self._took = backend, address_of, took
        self.sessions = Sessions(backend.user)
        self.gets = StreamPlaces("reads", limits.gets)
        self.puts = StreamPlaces("writes", limits.puts)
        self.memory = memory or SharedBytes(MEMORY_BYTES_MAX)
        """The memory budget of the streams."""
        self._reading = ReadMemory(self.memory)
        self._stopping = threading.Event()
        super().__init__(
            location,
            auth_handler=NoHandshake(),
            middleware={MIDDLEWARE: Callers(backend, self.sessions)},
            tls_certificates=None if certificate is None or key is None else [(certificate, key)],
        )

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Refuse new calls, end the streams, and wait for both. Returns whether all ended in time.

        A client that does not read its stream can block this forever, so the caller must end the process.
        """
        self._stopping.set()
        shutting = threading.Thread(target=self.shutdown, name="flight-shutdown", daemon=True)
        shutting.start()
        shutting.join(timeout_s)
        return not shutting.is_alive()

    # Called by Flight

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """The logs that the user may read, each as one endpoint."""

        def listed(user: User) -> Iterator[flight.FlightInfo]:
            if criteria:
                raise InvalidInput(f"expected no criteria, got {show(criteria)}", "criteria")
            return iter(list(self._listed(user)))

        return self._answer(context, "list_flights", listed)

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """A log as one endpoint (a path), or the splits of a ticket (a command)."""

        def planned(user: User) -> flight.FlightInfo:
            if descriptor.descriptor_type == flight.DescriptorType.PATH:
                log = _log_of(descriptor)
                self._backend.authorize(user, Right.READ, log)
                return self._whole(user, log, descriptor)
            command = decode(PlanCommand, descriptor.command or b"", "command")
            self._backend.authorize(user, Right.READ, command.log)
            return reads.plan_of(self._backend, command, descriptor, self.memory.bytes_max)

        return self._answer(context, "get_flight_info", planned)

    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        """The schema of the answer of `get_flight_info`. pyarrow does not pass on Flight errors from here, but reports
        a failure. Only its text shows which error it is (`Told`)."""

        def described(user: User) -> flight.SchemaResult:
            if descriptor.descriptor_type == flight.DescriptorType.PATH:
                ticket = Ticket(_log_of(descriptor))
            else:
                ticket = decode(PlanCommand, descriptor.command or b"", "command")
            self._backend.authorize(user, Right.READ, ticket.log)
            schema = schema_of(ticket)
            self._backend.place(ticket.log)
            return flight.SchemaResult(schema)

        try:
            return self._answer(context, "get_schema", described)
        except flight.FlightError as error:
            raise Told(str(error)) from None

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """The events of a ticket."""

        def read(user: User) -> flight.FlightDataStream:
            given = decode(Ticket, ticket.ticket, "ticket")
            self._backend.authorize(user, Right.READ, given.log)
            name = context.peer()
            peer = self._address_of(name)
            place = self.gets.take(user.name or peer)
            try:
                place.hold(self._reading)
                took = partial(self._took, name)
                return reads.batches_of(self._backend, user, peer, given, place, self._stopping, took)
            except BaseException:
                place.release()
                raise

        return self._answer(context, "do_get", read)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Append or stage batches."""

        def put(user: User) -> None:
            command = decode(PutCommand, descriptor.command or b"", "command")
            target = command.append or command.stage
            if target is None or (command.append is not None and command.stage is not None):
                raise InvalidInput("expected exactly one of `append` and `stage`", "command")
            self._backend.authorize(user, Right.APPEND, target.log)
            with self.puts.take(user.name or self._address_of(context.peer())):
                if not self._backend.place(target.log).may_append:
                    raise NotPrimary(target.log)
                incoming = writes.Incoming(context, reader, self._stopping, target, self.memory, self._took)
                if command.append is not None:
                    writes.append(self._backend, command.append, incoming, writer)
                elif command.stage is not None:
                    writes.stage(self._backend, user, command.stage, incoming, writer)

        self._answer(context, "do_put", put)

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Refuse the call: exchanges are not supported. Without this method, pyarrow would send its traceback."""

        def exchanged(user: User) -> None:
            raise InvalidInput("DoExchange is not supported; use DoGet, DoPut or DoAction", "method")

        self._answer(context, "do_exchange", exchanged)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        """Run one of `wire.ACTIONS`."""

        def acted(user: User) -> list[bytes]:
            check_size(action.body, action.type)  # before it is copied
            return [actions.act(self._backend, user, action.type, action.body.to_pybytes())]

        return self._answer(context, f"action {show(action.type)}", acted)

    def list_actions(self, context: flight.ServerCallContext) -> list[flight.ActionType]:
        """The actions, with the right that each requires."""
        return [flight.ActionType(name, f"{shape.right or 'no'} right is needed") for name, shape in ACTIONS.items()]

    def _answer(self, context: flight.ServerCallContext, doing: str, call: Callable[[User], T]) -> T:
        """The answer to a call for its caller. Every error becomes a Flight error."""
        try:
            if self._stopping.is_set():
                raise Closed("")
            user = context.get_middleware(MIDDLEWARE).user(self._address_of(context.peer()))
            self._took(context.peer())
            try:
                return call(user)
            except Unauthenticated:
                self.sessions.end(user.name)
                raise
        except Exception as error:
            raise flight_error_of(error, doing) from None

    def _listed(self, user: User) -> Iterator[flight.FlightInfo]:
        for name in actions.logs_of(self._backend, user):
            with suppress(LogNotFound):  # deleted since
                yield self._whole(user, name, flight.FlightDescriptor.for_path(name))

    def _whole(self, user: User, log: str, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        return reads.whole_of(self._backend, actions.info_of(self._backend, user, log), descriptor)


def _log_of(descriptor: flight.FlightDescriptor) -> str:
    if len(descriptor.path) != 1:
        raise InvalidInput(f"expected a path of one part (the log's name), got {len(descriptor.path)} parts", "path")
    return str(descriptor.path[0].decode())  # gRPC has already refused invalid UTF-8
