"""The nine performatives (part 2, section 2.7), re-exported with their nested types.

Fields are plain Python values: int, str, bytes, bool, `Symbol`, dict, and a tuple of symbols for fields that the
standard marks multiple. A field that is absent or null has the standard's default.
"""

import struct
from collections.abc import Mapping
from reprlib import repr as shown
from typing import Annotated, Any, Final

from .codec import DecodeError
from .composite import MANDATORY, Composite, Group, composite, read_fields, write_composite
from .decoding import read
from .fields import BINARY, BOOLEAN, STRING, SYMBOL_MAP, SYMBOLS, UBYTE, UINT, ULONG, USHORT
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


@composite("open", 0x10)
class Open(Composite):
    """Negotiates the connection (2.7.1). `idle_time_out` is in milliseconds, `max_frame_size` in bytes."""

    container_id: Annotated[str, STRING]
    hostname: Annotated[str | None, STRING] = None
    max_frame_size: Annotated[int, UINT] = UINT_MAX
    channel_max: Annotated[int, USHORT] = 65535
    idle_time_out: Annotated[int | None, UINT] = None
    outgoing_locales: Annotated[tuple[str, ...], SYMBOLS] = ()
    incoming_locales: Annotated[tuple[str, ...], SYMBOLS] = ()
    offered_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    desired_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    properties: Annotated[Mapping[Any, Any] | None, SYMBOL_MAP] = None


@composite("begin", 0x11)
class Begin(Composite):
    """Begins a session on a channel (2.7.2)."""

    remote_channel: Annotated[int | None, USHORT] = None
    next_outgoing_id: Annotated[int, UINT, MANDATORY] = 0
    incoming_window: Annotated[int, UINT, MANDATORY] = 0
    outgoing_window: Annotated[int, UINT, MANDATORY] = 0
    handle_max: Annotated[int, UINT] = UINT_MAX
    offered_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    desired_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    properties: Annotated[Mapping[Any, Any] | None, SYMBOL_MAP] = None


@composite("attach", 0x12)
class Attach(Composite):
    """Attaches a link to a session (2.7.3). `role` is False at the sender, True at the receiver."""

    name: Annotated[str, STRING]
    handle: Annotated[int, UINT]
    role: Annotated[bool, BOOLEAN]
    snd_settle_mode: Annotated[int, UBYTE] = 2
    rcv_settle_mode: Annotated[int, UBYTE] = 0
    source: Annotated[Source | Described | None, SOURCE] = None
    target: Annotated[Target | Coordinator | Described | None, TARGET] = None
    unsettled: Annotated[Mapping[bytes, DeliveryState | Described | None] | None, UNSETTLED] = None
    incomplete_unsettled: Annotated[bool, BOOLEAN] = False
    initial_delivery_count: Annotated[int | None, UINT] = None
    max_message_size: Annotated[int | None, ULONG] = None
    offered_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    desired_capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()
    properties: Annotated[Mapping[Any, Any] | None, SYMBOL_MAP] = None


@composite("flow", 0x13)
class Flow(Composite):
    """Updates the state of a session's windows and, with a `handle`, of a link's credit (2.7.4)."""

    next_incoming_id: Annotated[int | None, UINT] = None
    incoming_window: Annotated[int, UINT, MANDATORY] = 0
    next_outgoing_id: Annotated[int, UINT, MANDATORY] = 0
    outgoing_window: Annotated[int, UINT, MANDATORY] = 0
    handle: Annotated[int | None, UINT] = None
    delivery_count: Annotated[int | None, UINT] = None
    link_credit: Annotated[int | None, UINT] = None
    available: Annotated[int | None, UINT] = None
    drain: Annotated[bool, BOOLEAN] = False
    echo: Annotated[bool, BOOLEAN] = False
    properties: Annotated[Mapping[Any, Any] | None, SYMBOL_MAP] = None


@composite("transfer", 0x14)
class Transfer(Composite):
    """Sends a message or a part of one, which follows it in the frame (2.7.5)."""

    handle: Annotated[int, UINT]
    delivery_id: Annotated[int | None, UINT] = None
    delivery_tag: Annotated[bytes | None, BINARY] = None
    message_format: Annotated[int | None, UINT] = None
    settled: Annotated[bool | None, BOOLEAN] = None
    more: Annotated[bool, BOOLEAN] = False
    rcv_settle_mode: Annotated[int | None, UBYTE] = None
    state: Annotated[DeliveryState | Described | None, DELIVERY_STATE] = None
    resume: Annotated[bool, BOOLEAN] = False
    aborted: Annotated[bool, BOOLEAN] = False
    batchable: Annotated[bool, BOOLEAN] = False


@composite("disposition", 0x15)
class Disposition(Composite):
    """The state of the deliveries `first` to `last`, or of `first` alone (2.7.6). `role` is as in `Attach`."""

    role: Annotated[bool, BOOLEAN]
    first: Annotated[int, UINT]
    last: Annotated[int | None, UINT] = None
    settled: Annotated[bool, BOOLEAN] = False
    state: Annotated[DeliveryState | Described | None, DELIVERY_STATE] = None
    batchable: Annotated[bool, BOOLEAN] = False


@composite("detach", 0x16)
class Detach(Composite):
    """Detaches a link, or ends it if `closed` (2.7.7)."""

    handle: Annotated[int, UINT]
    closed: Annotated[bool, BOOLEAN] = False
    error: Annotated[ErrorCondition | Described | None, ERROR] = None


@composite("end", 0x17)
class End(Composite):
    """Ends a session (2.7.8)."""

    error: Annotated[ErrorCondition | Described | None, ERROR] = None


@composite("close", 0x18)
class Close(Composite):
    """Closes the connection (2.7.9)."""

    error: Annotated[ErrorCondition | Described | None, ERROR] = None


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close

_PERFORMATIVES: Final = Group("performative", [Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close])


def decode_performative(buffer: bytes, at: int, end: int) -> tuple[Performative, int]:
    """The performative that starts at `at` (its descriptor a ulong or a symbol), and where the payload begins.

    Raises DecodeError if it is not a performative of the standard, a mandatory field is missing or a field has the
    wrong type (the message names both), or the bytes are invalid or truncated."""
    try:
        layout, body = _PERFORMATIVES.find(buffer, at)
        if layout is None:
            descriptor = read(buffer, at + 1, 0)[0]
            raise DecodeError(f"expected a performative, got a value described by {shown(descriptor)}", at)
        performative, after = read_fields(layout, buffer, body)
    except (IndexError, struct.error):
        raise DecodeError("the performative is cut short", at) from None
    if after > end:
        raise DecodeError("the performative is cut short", at)
    return performative, after


def encode_performative(performative: Performative) -> bytearray:
    """The performative at full width, including trailing nulls: some clients index fields without checking.

    The exceptions are a flow without a link, which has 7 fields, and an end or close without an error, which has none.
    Raises EncodeError, which names performative and field."""
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
    """Append, in one piece, the flow that a receiver sends often. Returns False if one of its numbers is missing or
    invalid.
    """
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
