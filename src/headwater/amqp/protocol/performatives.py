"""The nine performatives (part 2, section 2.7), with the names of their nested types at hand.

Fields are plain Python values: int, str, bytes, bool, `Symbol`, dict, and a tuple of symbols where the standard says
multiple. A field that is absent or null has the standard's default.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any, Final

from .codec import DecodeError
from .composite import Composite, Group, read_fields, write_composite
from .decoding import read
from .fields import (
    BINARY,
    BOOLEAN,
    STRING,
    SYMBOL_MAP,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Field,
    mandatory,
    names,
)
from .states import (
    DELIVERY_STATE,
    ERROR,
    UNSETTLED,
    Accepted,
    Declared,
    DeliveryState,
    ErrorCondition,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from .terminus import SOURCE, TARGET, Coordinator, Source, Target
from .types import Described

__all__ = [
    "Accepted",
    "Attach",
    "Begin",
    "Close",
    "Coordinator",
    "Declared",
    "DeliveryState",
    "Detach",
    "Disposition",
    "End",
    "ErrorCondition",
    "Flow",
    "Modified",
    "Open",
    "Outcome",
    "Performative",
    "Received",
    "Rejected",
    "Released",
    "Source",
    "Target",
    "TransactionalState",
    "Transfer",
    "decode_performative",
    "encode_performative",
]

UINT_MAX: Final = 0xFFFFFFFF


class Open(Composite):
    """Negotiates the connection (2.7.1). `idle_time_out` is in milliseconds, `max_frame_size` in bytes."""

    NAME = "open"
    CODE = 0x10
    FIELDS = (
        mandatory("container_id", STRING),
        Field("hostname", STRING),
        Field("max_frame_size", UINT, UINT_MAX),
        Field("channel_max", USHORT, 65535),
        Field("idle_time_out", UINT),
        Field("outgoing_locales", SYMBOLS, ()),
        Field("incoming_locales", SYMBOLS, ()),
        Field("offered_capabilities", SYMBOLS, ()),
        Field("desired_capabilities", SYMBOLS, ()),
        Field("properties", SYMBOL_MAP),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        container_id: str,
        hostname: str | None = None,
        max_frame_size: int = UINT_MAX,
        channel_max: int = 65535,
        idle_time_out: int | None = None,
        outgoing_locales: tuple[str, ...] = (),
        incoming_locales: tuple[str, ...] = (),
        offered_capabilities: tuple[str, ...] = (),
        desired_capabilities: tuple[str, ...] = (),
        properties: Mapping[Any, Any] | None = None,
    ) -> None:
        self.container_id = container_id
        self.hostname = hostname
        self.max_frame_size = max_frame_size
        self.channel_max = channel_max
        self.idle_time_out = idle_time_out
        self.outgoing_locales = outgoing_locales
        self.incoming_locales = incoming_locales
        self.offered_capabilities = offered_capabilities
        self.desired_capabilities = desired_capabilities
        self.properties = properties


class Begin(Composite):
    """Begins a session on a channel (2.7.2)."""

    NAME = "begin"
    CODE = 0x11
    FIELDS = (
        Field("remote_channel", USHORT),
        mandatory("next_outgoing_id", UINT),
        mandatory("incoming_window", UINT),
        mandatory("outgoing_window", UINT),
        Field("handle_max", UINT, UINT_MAX),
        Field("offered_capabilities", SYMBOLS, ()),
        Field("desired_capabilities", SYMBOLS, ()),
        Field("properties", SYMBOL_MAP),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        remote_channel: int | None = None,
        next_outgoing_id: int = 0,
        incoming_window: int = 0,
        outgoing_window: int = 0,
        handle_max: int = UINT_MAX,
        offered_capabilities: tuple[str, ...] = (),
        desired_capabilities: tuple[str, ...] = (),
        properties: Mapping[Any, Any] | None = None,
    ) -> None:
        self.remote_channel = remote_channel
        self.next_outgoing_id = next_outgoing_id
        self.incoming_window = incoming_window
        self.outgoing_window = outgoing_window
        self.handle_max = handle_max
        self.offered_capabilities = offered_capabilities
        self.desired_capabilities = desired_capabilities
        self.properties = properties


class Attach(Composite):
    """Attaches a link to a session (2.7.3). `role` is False at the sender, True at the receiver."""

    NAME = "attach"
    CODE = 0x12
    FIELDS = (
        mandatory("name", STRING),
        mandatory("handle", UINT),
        mandatory("role", BOOLEAN),
        Field("snd_settle_mode", UBYTE, 2),
        Field("rcv_settle_mode", UBYTE, 0),
        Field("source", SOURCE),
        Field("target", TARGET),
        Field("unsettled", UNSETTLED),
        Field("incomplete_unsettled", BOOLEAN, False),
        Field("initial_delivery_count", UINT),
        Field("max_message_size", ULONG),
        Field("offered_capabilities", SYMBOLS, ()),
        Field("desired_capabilities", SYMBOLS, ()),
        Field("properties", SYMBOL_MAP),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        name: str,
        handle: int,
        role: bool,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        source: Source | Described | None = None,
        target: Target | Coordinator | Described | None = None,
        unsettled: Mapping[bytes, DeliveryState | Described | None] | None = None,
        incomplete_unsettled: bool = False,
        initial_delivery_count: int | None = None,
        max_message_size: int | None = None,
        offered_capabilities: tuple[str, ...] = (),
        desired_capabilities: tuple[str, ...] = (),
        properties: Mapping[Any, Any] | None = None,
    ) -> None:
        self.name = name
        self.handle = handle
        self.role = role
        self.snd_settle_mode = snd_settle_mode
        self.rcv_settle_mode = rcv_settle_mode
        self.source = source
        self.target = target
        self.unsettled = unsettled
        self.incomplete_unsettled = incomplete_unsettled
        self.initial_delivery_count = initial_delivery_count
        self.max_message_size = max_message_size
        self.offered_capabilities = offered_capabilities
        self.desired_capabilities = desired_capabilities
        self.properties = properties


class Flow(Composite):
    """Updates the state of a session's windows, and of a link's credit where it has a `handle` (2.7.4)."""

    NAME = "flow"
    CODE = 0x13
    FIELDS = (
        Field("next_incoming_id", UINT),
        mandatory("incoming_window", UINT),
        mandatory("next_outgoing_id", UINT),
        mandatory("outgoing_window", UINT),
        Field("handle", UINT),
        Field("delivery_count", UINT),
        Field("link_credit", UINT),
        Field("available", UINT),
        Field("drain", BOOLEAN, False),
        Field("echo", BOOLEAN, False),
        Field("properties", SYMBOL_MAP),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        next_incoming_id: int | None = None,
        incoming_window: int = 0,
        next_outgoing_id: int = 0,
        outgoing_window: int = 0,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        available: int | None = None,
        drain: bool = False,
        echo: bool = False,
        properties: Mapping[Any, Any] | None = None,
    ) -> None:
        self.next_incoming_id = next_incoming_id
        self.incoming_window = incoming_window
        self.next_outgoing_id = next_outgoing_id
        self.outgoing_window = outgoing_window
        self.handle = handle
        self.delivery_count = delivery_count
        self.link_credit = link_credit
        self.available = available
        self.drain = drain
        self.echo = echo
        self.properties = properties


class Transfer(Composite):
    """Sends a message, or a part of one, which follows it in the frame (2.7.5)."""

    NAME = "transfer"
    CODE = 0x14
    FIELDS = (
        mandatory("handle", UINT),
        Field("delivery_id", UINT),
        Field("delivery_tag", BINARY),
        Field("message_format", UINT),
        Field("settled", BOOLEAN),
        Field("more", BOOLEAN, False),
        Field("rcv_settle_mode", UBYTE),
        Field("state", DELIVERY_STATE),
        Field("resume", BOOLEAN, False),
        Field("aborted", BOOLEAN, False),
        Field("batchable", BOOLEAN, False),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        handle: int,
        delivery_id: int | None = None,
        delivery_tag: bytes | None = None,
        message_format: int | None = None,
        settled: bool | None = None,
        more: bool = False,
        rcv_settle_mode: int | None = None,
        state: DeliveryState | Described | None = None,
        resume: bool = False,
        aborted: bool = False,
        batchable: bool = False,
    ) -> None:
        self.handle = handle
        self.delivery_id = delivery_id
        self.delivery_tag = delivery_tag
        self.message_format = message_format
        self.settled = settled
        self.more = more
        self.rcv_settle_mode = rcv_settle_mode
        self.state = state
        self.resume = resume
        self.aborted = aborted
        self.batchable = batchable


class Disposition(Composite):
    """The state of the deliveries `first` to `last`, or of `first` alone (2.7.6). `role` as in `Attach`."""

    NAME = "disposition"
    CODE = 0x15
    FIELDS = (
        mandatory("role", BOOLEAN),
        mandatory("first", UINT),
        Field("last", UINT),
        Field("settled", BOOLEAN, False),
        Field("state", DELIVERY_STATE),
        Field("batchable", BOOLEAN, False),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        role: bool,
        first: int,
        last: int | None = None,
        settled: bool = False,
        state: DeliveryState | Described | None = None,
        batchable: bool = False,
    ) -> None:
        self.role = role
        self.first = first
        self.last = last
        self.settled = settled
        self.state = state
        self.batchable = batchable


class Detach(Composite):
    """Detaches a link, or ends it where `closed` (2.7.7)."""

    NAME = "detach"
    CODE = 0x16
    FIELDS = (
        mandatory("handle", UINT),
        Field("closed", BOOLEAN, False),
        Field("error", ERROR),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        handle: int,
        closed: bool = False,
        error: ErrorCondition | Described | None = None,
    ) -> None:
        self.handle = handle
        self.closed = closed
        self.error = error


class End(Composite):
    """Ends a session (2.7.8)."""

    NAME = "end"
    CODE = 0x17
    FIELDS = (Field("error", ERROR),)
    __slots__ = names(FIELDS)

    def __init__(
        self,
        error: ErrorCondition | Described | None = None,
    ) -> None:
        self.error = error


class Close(Composite):
    """Closes the connection (2.7.9)."""

    NAME = "close"
    CODE = 0x18
    FIELDS = (Field("error", ERROR),)
    __slots__ = names(FIELDS)

    def __init__(
        self,
        error: ErrorCondition | Described | None = None,
    ) -> None:
        self.error = error


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close

_PERFORMATIVES: Final = Group("performative", [Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close])


def decode_performative(buffer: bytes, at: int, end: int) -> tuple[Performative, int]:
    """The performative that starts at `at` (its descriptor an ulong or a symbol), and where the payload begins.

    Raises DecodeError: no performative of the standard, a mandatory field is missing, a field is of a wrong type (the
    message names both), the bytes are garbled or cut short.
    """
    try:
        layout, body = _PERFORMATIVES.find(buffer, at)
        if layout is None:
            descriptor = read(buffer, at + 1, 0)[0]
            raise DecodeError(f"performative expected, a value described by {shown(descriptor)} found", at)
        performative, after = read_fields(layout, buffer, body)
    except (IndexError, struct.error):
        raise DecodeError("the performative is cut short", at) from None
    if after > end:
        raise DecodeError("the performative is cut short", at)
    return performative, after


def encode_performative(performative: Performative) -> bytearray:
    """The performative in its full width, trailing nulls included: some clients take fields by their index, unchecked.

    Only a flow without a link has 7 fields, and an end or close without an error none. Raises EncodeError, which
    names performative and field.
    """
    if isinstance(performative, Flow):
        return _encode_flow(performative)
    out = bytearray()
    if isinstance(performative, (End, Close)):
        write_composite(out, performative, 0 if performative.error is None else 1)
    else:
        write_composite(out, performative)
    return out


def _encode_flow(flow: Flow) -> bytearray:
    out = bytearray()
    is_short = flow.handle is None and flow.available is None and flow.properties is None
    if is_short and not flow.drain and not flow.echo:
        write_composite(out, flow, 7)
    elif flow.properties is not None or flow.available is not None or not _encode_credit(out, flow):
        write_composite(out, flow)
    return out


def _encode_credit(out: bytearray, flow: Flow) -> bool:
    """Appends, in one piece, the flow that a receiver sends often; False where a number of it is missing or wrong."""
    try:
        out += _CREDIT.pack(
            b"\x00\x53\x13\xc0\x28\x0b",
            0x70, flow.next_incoming_id,
            0x70, flow.incoming_window,
            0x70, flow.next_outgoing_id,
            0x70, flow.outgoing_window,
            0x70, flow.handle,
            0x70, flow.delivery_count,
            0x70, flow.link_credit,
            0x40,
            0x41 if flow.drain else 0x42,
            0x41 if flow.echo else 0x42,
            0x40,
        )  # fmt: skip
    except struct.error:
        return False
    return True


_CREDIT: Final = struct.Struct(">6sBIBIBIBIBIBIBIBBBB")
