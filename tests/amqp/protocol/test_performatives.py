"""The nine performatives and the types nested in them, both ways."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.amqp.protocol.codec import DecodeError, EncodeError, decode, encode
from headwater.amqp.protocol.composite import Composite
from headwater.amqp.protocol.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
    decode_performative,
    encode_performative,
)
from headwater.amqp.protocol.types import Array, Char, Described, Long, Symbol, UByte, UInt, ULong
from tests.amqp.composites import NESTED, PERFORMATIVES, composites, same_types
from tests.amqp.values import same
from tests.every import every

ACCEPTED = Described(ULong(0x24), [])


def octets(performative: Any) -> bytes:
    return bytes(encode_performative(performative))


def decoded(buffer: bytes) -> Any:
    performative, after = decode_performative(buffer, 0, len(buffer))
    assert after == len(buffer)
    return performative


def listed(performative: Any) -> list[Any]:
    """The performative's fields, as the codec alone sees them."""
    buffer = octets(performative)
    described, _ = decode(buffer, 0, len(buffer))
    assert isinstance(described, Described)
    assert described.descriptor == performative.CODE
    assert isinstance(described.value, list)
    return described.value


def raw(type: type[Composite], *fields: Any) -> bytes:
    """The type's encoding with any fields at all."""
    return encode(Described(ULong(type.CODE), list(fields)))


@given(st.one_of(*map(composites, PERFORMATIVES)))
def test_a_performative_is_decoded_as_it_was_encoded(performative: Any) -> None:
    again = decoded(octets(performative))
    assert octets(again) == octets(performative)
    assert again == performative or "nan" in repr(performative)
    assert same_types(again, performative)


@given(st.one_of(*map(composites, NESTED)))
def test_nested_types_are_decoded_as_they_were_encoded(nested: Any) -> None:
    attach = Attach("l", 0, False, source=nested, target=nested)
    again = decoded(octets(attach))
    assert octets(again) == octets(attach)


@every(
    ("performative", "width"),
    [
        (Open("me"), 10),
        (Begin(), 8),
        (Attach("link", 0, True), 14),
        (Flow(), 7),
        (Flow(echo=True), 11),
        (Flow(drain=True), 11),
        (Flow(properties={}), 11),
        (Flow(1, 2, 3, 4, 5, 6, 7), 11),
        (Flow(handle=5), 11),
        (Transfer(0), 11),
        (Disposition(True, 1), 6),
        (Detach(0), 3),
        (End(), 0),
        (End(ErrorCondition("a:b")), 1),
        (Close(), 0),
        (Close(ErrorCondition("a:b")), 1),
    ],
)
def test_a_performative_is_written_in_its_full_width(performative: Any, width: int) -> None:
    """Azure's Python client takes the fields of begin, attach and transfer by their index, however many came."""
    assert len(listed(performative)) == width


def test_nested_types_are_written_in_their_full_width() -> None:
    fields = listed(Attach("l", 0, True, source=Source(), target=Target()))
    assert [len(fields[5].value), len(fields[6].value)] == [11, 7]
    assert listed(Close(ErrorCondition("a:b")))[0].value == ["a:b", None, None]
    assert listed(Disposition(True, 1, state=Accepted()))[4] == ACCEPTED


def test_absent_fields_have_the_standards_defaults() -> None:
    assert decoded(raw(Open, "me")) == Open("me", max_frame_size=2**32 - 1, channel_max=65535)
    assert decoded(raw(Begin, None, UInt(0), UInt(1), UInt(2))) == Begin(None, 0, 1, 2, handle_max=2**32 - 1)
    attach = decoded(raw(Attach, "l", UInt(1), True))
    assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (2, 0)
    assert (attach.source, attach.target, attach.unsettled, attach.properties) == (None, None, None, None)
    assert (attach.offered_capabilities, attach.incomplete_unsettled, attach.max_message_size) == ((), False, None)
    flow = decoded(raw(Flow, None, UInt(1), UInt(2), UInt(3)))
    assert flow == Flow(None, 1, 2, 3, None, None, None, None, False, False, None)
    transfer = decoded(raw(Transfer, UInt(0)))
    assert (transfer.settled, transfer.more, transfer.aborted, transfer.batchable) == (None, False, False, False)
    assert decoded(raw(Disposition, True, UInt(1))) == Disposition(True, 1, None, False, None, False)
    assert decoded(raw(Detach, UInt(0))) == Detach(0, False, None)
    assert decoded(raw(Attach, "l", UInt(1), True, None, None, Described(ULong(0x28), []))).source == Source(
        None, 0, "session-end", 0, False, None, None, None, None, (), ()
    )


@pytest.mark.parametrize(
    "descriptor", ["00 53 16", "00 80 0000000000000016", "00 a3 10 616d71703a6465746163683a6c697374"]
)
@pytest.mark.parametrize("fields", ["c0 02 01 43", "d0 00000005 00000001 43", "c0 04 03 43 42 40"])
def test_descriptor_and_list_may_have_any_encoding(descriptor: str, fields: str) -> None:
    assert decoded(bytes.fromhex(descriptor + fields)) == Detach(0)


def test_a_descriptor_may_be_a_symbol_at_every_level() -> None:
    state = Described(Symbol("amqp:rejected:list"), [Described(Symbol("amqp:error:list"), [Symbol("a:b"), "why"])])
    given = encode(Described(Symbol("amqp:disposition:list"), [True, UInt(1), None, None, state]))
    assert decoded(given) == Disposition(True, 1, state=Rejected(ErrorCondition("a:b", "why")))


def test_the_payload_begins_behind_the_performative() -> None:
    buffer = b"--" + octets(Transfer(0, 1, b"t")) + b"payload"
    _, after = decode_performative(buffer, 2, len(buffer))
    assert buffer[after:] == b"payload"


def test_fields_are_plain_values() -> None:
    attach = decoded(octets(Attach("l", 1, True, 1, 1, initial_delivery_count=300, max_message_size=2**40)))
    numbers = (attach.handle, attach.snd_settle_mode, attach.initial_delivery_count, attach.max_message_size)
    assert {type(number) for number in numbers} == {int}
    assert type(attach.name) is str
    transfer = decoded(octets(Transfer(0, 2**31, b"tag", 0)))
    assert (type(transfer.delivery_id), type(transfer.delivery_tag)) == (int, bytes)
    closed = decoded(octets(Close(ErrorCondition("a:b", "c", {"k": UByte(1)}))))
    assert type(closed.error.condition) is Symbol
    assert same(closed.error.info, {Symbol("k"): UByte(1)})


@pytest.mark.parametrize(
    ("given", "symbols"),
    [
        (None, ()),
        (Symbol("a"), ("a",)),
        (Array([Symbol("a"), Symbol("b")]), ("a", "b")),
        (Array([Symbol("a" * 300)]), ("a" * 300,)),
        (Array(), ()),
    ],
)
def test_a_multiple_field_is_a_tuple_of_symbols(given: Any, symbols: tuple[str, ...]) -> None:
    opened = decoded(raw(Open, "me", None, None, None, None, given))
    assert opened.outgoing_locales == symbols
    assert {type(symbol) for symbol in opened.outgoing_locales} <= {Symbol}


def test_a_multiple_field_is_written_as_an_array_even_of_one() -> None:
    written = listed(Open("me", offered_capabilities=("a",)))
    assert same(written[7], Array([Symbol("a")]))
    assert written[8] is None


def test_text_is_written_as_the_symbol_that_is_due() -> None:
    source = Source(filter={"f": 1}, distribution_mode="copy", outcomes=("a",))
    fields = listed(Attach("l", 0, True, source=source, properties={"p": "text"}))
    assert same(fields[13], {Symbol("p"): "text"})
    assert same(fields[5].value[6:8], [Symbol("copy"), {Symbol("f"): Long(1)}])


WRONG: list[tuple[type[Composite], int]] = [
    (type, index) for type in (*PERFORMATIVES,) for index in range(len(type.FIELDS))
]


def fine(type: type[Composite]) -> list[Any]:
    """The mandatory fields, as few as there may be."""
    named = {"string": "n", "uint": UInt(1), "boolean": True, "symbol": Symbol("a:b"), "ulong": ULong(1), "binary": b""}
    return [named[field.kind.name] if field.is_mandatory else None for field in type.FIELDS]


@every(("type", "index"), WRONG)
@every("wrong", [Char("x"), Array([Char("x")]), [], {Char("x"): 1}, 1.5], ids=repr)
def test_a_field_of_a_wrong_type_is_named(type: type[Composite], index: int, wrong: Any) -> None:
    fields = fine(type)
    decoded(raw(type, *fields))
    fields[index] = wrong
    name = f"{type.NAME}.{type.FIELDS[index].name}"
    with pytest.raises(DecodeError, match=rf"^{name}: expected .*, got .* \(at byte"):
        decoded(raw(type, *fields))


@every(("type", "index"), [(type, i) for type, i in WRONG if type.FIELDS[i].is_mandatory])
def test_a_mandatory_field_that_is_missing_is_named(type: type[Composite], index: int) -> None:
    name = f"{type.NAME}.{type.FIELDS[index].name}"
    fields = fine(type)
    with pytest.raises(DecodeError, match=rf"^{name}: a value is required"):
        decoded(raw(type, *fields[:index]))


@every(("type", "index"), [(type, i) for type, i in WRONG if type.FIELDS[i].is_mandatory])
def test_a_mandatory_field_that_is_not_given_is_named(type: type[Composite], index: int) -> None:
    name = f"{type.NAME}.{type.FIELDS[index].name}"
    values = decoded(raw(type, *fine(type)))
    setattr(values, type.FIELDS[index].name, None)
    with pytest.raises(EncodeError, match=rf"^{name}: a value is required"):
        octets(values)


@every(("type", "index"), WRONG)
def test_a_field_that_cannot_be_written_is_named(type: type[Composite], index: int) -> None:
    field = type.FIELDS[index]
    if field.kind.name == "boolean":
        return  # anything is true or false
    performative = decoded(raw(type, *fine(type)))
    for wrong in (object(), -1, "\ud800", {"a": object()}, 2**70):
        setattr(performative, field.name, wrong)
        with pytest.raises(EncodeError, match=rf"^{type.NAME}.{field.name}: "):
            octets(performative)


@pytest.mark.parametrize("number", [-1, 2**32, "1", 1.5])
def test_a_number_that_is_out_of_range_is_refused_in_a_flow_of_credit_too(number: Any) -> None:
    with pytest.raises(EncodeError, match=r"flow\.link_credit"):
        octets(Flow(1, 2, 3, 4, 5, 6, number))


@pytest.mark.parametrize("type", PERFORMATIVES)
def test_a_copy_is_equal_and_another(type: type[Composite]) -> None:
    given = decoded(raw(type, *fine(type)))
    taken = copy(given)
    assert taken == given and taken is not given
    field = type.FIELDS[-1].name
    before = getattr(given, field)
    setattr(taken, field, type.FIELDS[-1].default)
    assert getattr(given, field) == before


@pytest.mark.parametrize("type", PERFORMATIVES)
def test_more_fields_than_the_standard_has_are_refused(type: type[Composite]) -> None:
    count = len(type.FIELDS)
    with pytest.raises(DecodeError, match=f"{type.NAME}: expected at most {count} fields, got {count + 1}"):
        decoded(raw(type, *fine(type), None))


@pytest.mark.parametrize(
    ("attach", "problem"),
    [
        ([Described(ULong(0x28), [UInt(1)])], "attach.source: source.address: expected string"),
        ([Described(ULong(0x28), {})], "attach.source: source: expected a list"),
        ([None, Described(ULong(0x29), [None] * 8)], "attach.target: target: expected at most 7 fields, got 8"),
        ([None, Described(ULong(0x30), ["a"])], "attach.target: coordinator.capabilities: expected symbol"),
        (["a"], "attach.source: expected source"),
    ],
)
def test_a_terminus_with_wrong_types_inside_is_an_error(attach: list[Any], problem: str) -> None:
    with pytest.raises(DecodeError) as error:
        decoded(raw(Attach, "l", UInt(0), True, None, None, *attach))
    assert error.value.problem.startswith(problem)


def test_described_values_that_are_unknown_are_kept() -> None:
    unknown = Described(Symbol("com.example:thing:list"), [1])
    attach = Attach("l", 0, True, source=unknown, target=unknown)
    assert decoded(octets(attach)) == attach
    disposition = Disposition(True, 1, state=Described(ULong(0x99), []))
    assert decoded(octets(disposition)) == disposition
    assert decoded(octets(Disposition(True, 1, state=Described((1, 2), "x")))).state.value == "x"


def test_delivery_states_are_told_apart() -> None:
    for state in (
        Received(1, 2**33),
        Accepted(),
        Released(),
        Rejected(),
        Modified(True, True, {Symbol("x-opt-a"): 1}),
        TransactionalState(b"txn", Accepted()),
    ):
        assert decoded(octets(Disposition(True, 1, state=state))).state == state
    assert Accepted() != Released()
    assert decoded(octets(Attach("l", 0, False, target=Coordinator(("a",))))).target == Coordinator(("a",))


def test_a_performative_that_is_cut_short_is_an_error() -> None:
    state = Rejected(ErrorCondition("a:b", "c", {"k": [1]}))
    whole = octets(Transfer(0, 70000, b"tag", 0, False, state=state))
    for end in range(len(whole)):
        for buffer in (whole[:end], whole):
            with pytest.raises(DecodeError):
                decode_performative(buffer, 0, end)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (encode([1]), "expected performative, got constructor 0xc0"),
        (encode(Described(ULong(0x99), [])), "expected a performative, got a value described by 153"),
        (encode(Described(Symbol("x"), [])), "expected a performative, got a value described by 'x'"),
        (encode(Described(UInt(0x16), [0])), "expected a performative, got a value described by 22"),
        (encode(Described(ULong(0x24), [])), "expected a performative, got a value described by 36"),
        (encode(Described(ULong(0x16), {})), "detach: expected a list, got constructor 0xc1"),
        (bytes.fromhex("005316c0050143"), "detach: the list's size"),
        (bytes.fromhex("005316c0030143"), "cut short"),
    ],
)
def test_what_is_no_performative_is_an_error_that_says_why(given: bytes, problem: str) -> None:
    with pytest.raises(DecodeError) as error:
        decode_performative(given, 0, len(given))
    assert problem in error.value.problem or problem == "cut short"


def test_an_error_does_not_repeat_all_that_a_peer_sent() -> None:
    given = encode(Described(Symbol("x" * 10_000), []))
    with pytest.raises(DecodeError) as error:
        decode_performative(given, 0, len(given))
    assert len(str(error.value)) < 200


def test_a_performative_shows_what_was_given() -> None:
    assert repr(Detach(1, error=ErrorCondition("a:b"))) == "Detach(handle=1, error=ErrorCondition(condition='a:b'))"
    assert repr(Begin(1)) == "Begin(remote_channel=1, next_outgoing_id=0, incoming_window=0, outgoing_window=0)"
    assert Open("a") != Open("b")
    assert Open("a") != "a"
