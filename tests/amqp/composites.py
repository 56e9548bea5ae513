"""Strategies for composite types, made from what their fields say of themselves."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from headwater.amqp.protocol import fields
from headwater.amqp.protocol.composite import Composite
from headwater.amqp.protocol.fields import Field, Kind
from headwater.amqp.protocol.message import Header, Properties
from headwater.amqp.protocol.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declared,
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
)
from headwater.amqp.protocol.sasl import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from headwater.amqp.protocol.states import DELIVERY_STATE, ERROR, OUTCOME, UNSETTLED
from headwater.amqp.protocol.terminus import SOURCE, TARGET
from headwater.amqp.protocol.types import Described, Symbol, ULong
from tests.amqp.values import binaries, symbols, texts, values

PERFORMATIVES = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)
SASL_FRAMES = (SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome)
STATES = (Received, Accepted, Rejected, Released, Modified, Declared, TransactionalState)
NESTED = (*STATES, Source, Target, Coordinator, ErrorCondition)
SECTIONS = (Header, Properties)

described = st.builds(Described, st.just(Symbol("some:thing:list")) | st.just(ULong(0x468C00000004)), values)

by_kind: dict[Kind, st.SearchStrategy[Any]] = {
    fields.BOOLEAN: st.booleans(),
    fields.UBYTE: st.integers(0, 255),
    fields.USHORT: st.integers(0, 65535),
    fields.UINT: st.integers(0, 2**32 - 1) | st.sampled_from([0, 255, 256]),
    fields.ULONG: st.integers(0, 2**64 - 1) | st.sampled_from([0, 255, 256]),
    fields.TIMESTAMP: st.integers(-(2**63), 2**63 - 1),
    fields.BINARY: binaries,
    fields.STRING: texts,
    fields.SYMBOL: symbols,
    fields.LABEL: symbols,
    fields.SYMBOLS: st.lists(symbols, max_size=3).map(tuple),
    fields.SYMBOL_MAP: st.dictionaries(symbols, values, max_size=2),
    fields.ANNOTATIONS: st.dictionaries(symbols | st.integers(0, 2**64 - 1).map(ULong), values, max_size=2),
    fields.STRING_MAP: st.dictionaries(texts, values, max_size=2),
    fields.MESSAGE_ID: texts | binaries | st.uuids() | st.integers(0, 2**64 - 1).map(ULong),
}


def composites(type: type[Composite]) -> st.SearchStrategy[Any]:
    """Any value of the type: a field that is not mandatory may be absent."""
    return st.builds(type, **{field.name: _field(field) for field in type.FIELDS})


def _field(field: Field) -> st.SearchStrategy[Any]:
    given = by_kind[field.kind]
    if field.kind is fields.SYMBOLS and field.is_mandatory:
        return given.filter(bool)
    return given if field.is_mandatory else given | st.just(field.default)


by_kind[ERROR] = composites(ErrorCondition) | described
by_kind[OUTCOME] = st.one_of(*map(composites, (Accepted, Rejected, Released, Modified)), described)
by_kind[DELIVERY_STATE] = st.one_of(*map(composites, STATES), described)
by_kind[UNSETTLED] = st.dictionaries(binaries, by_kind[DELIVERY_STATE] | st.none(), max_size=2)
by_kind[SOURCE] = composites(Source) | described
by_kind[TARGET] = composites(Target) | composites(Coordinator) | described


def same_types(one: Composite, other: Composite) -> bool:
    """Are the fields of both of the same types?"""
    return all(type(getattr(one, f.name)) is type(getattr(other, f.name)) for f in one.FIELDS)
