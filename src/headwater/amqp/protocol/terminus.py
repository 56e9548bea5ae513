"""Where a link begins and ends (part 3, section 3.5; the coordinator: part 4, section 4.5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .composite import Composite, Group, kind_of
from .fields import BOOLEAN, STRING, SYMBOL, SYMBOL_MAP, SYMBOLS, UINT, Field, names
from .states import OUTCOME, Outcome
from .types import Described, Symbol

SESSION_END: Final = Symbol("session-end")
"""The expiry policy that holds where none is given."""


class Source(Composite):
    """Where messages come from (3.5.3). `timeout` in seconds; `durable` 0 none, 1 configuration, 2 unsettled state."""

    NAME = "source"
    CODE = 0x28
    FIELDS = (
        Field("address", STRING),
        Field("durable", UINT, 0),
        Field("expiry_policy", SYMBOL, SESSION_END),
        Field("timeout", UINT, 0),
        Field("dynamic", BOOLEAN, False),
        Field("dynamic_node_properties", SYMBOL_MAP),
        Field("distribution_mode", SYMBOL),
        Field("filter", SYMBOL_MAP),
        Field("default_outcome", OUTCOME),
        Field("outcomes", SYMBOLS, ()),
        Field("capabilities", SYMBOLS, ()),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        address: str | None = None,
        durable: int = 0,
        expiry_policy: str = SESSION_END,
        timeout: int = 0,
        dynamic: bool = False,
        dynamic_node_properties: Mapping[Any, Any] | None = None,
        distribution_mode: str | None = None,
        filter: Mapping[Any, Any] | None = None,
        default_outcome: Outcome | Described | None = None,
        outcomes: tuple[str, ...] = (),
        capabilities: tuple[str, ...] = (),
    ) -> None:
        self.address = address
        self.durable = durable
        self.expiry_policy = expiry_policy
        self.timeout = timeout
        self.dynamic = dynamic
        self.dynamic_node_properties = dynamic_node_properties
        self.distribution_mode = distribution_mode
        self.filter = filter
        self.default_outcome = default_outcome
        self.outcomes = outcomes
        self.capabilities = capabilities


class Target(Composite):
    """Where messages go (3.5.4). Units as in `Source`."""

    NAME = "target"
    CODE = 0x29
    FIELDS = (
        Field("address", STRING),
        Field("durable", UINT, 0),
        Field("expiry_policy", SYMBOL, SESSION_END),
        Field("timeout", UINT, 0),
        Field("dynamic", BOOLEAN, False),
        Field("dynamic_node_properties", SYMBOL_MAP),
        Field("capabilities", SYMBOLS, ()),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        address: str | None = None,
        durable: int = 0,
        expiry_policy: str = SESSION_END,
        timeout: int = 0,
        dynamic: bool = False,
        dynamic_node_properties: Mapping[Any, Any] | None = None,
        capabilities: tuple[str, ...] = (),
    ) -> None:
        self.address = address
        self.durable = durable
        self.expiry_policy = expiry_policy
        self.timeout = timeout
        self.dynamic = dynamic
        self.dynamic_node_properties = dynamic_node_properties
        self.capabilities = capabilities


class Coordinator(Composite):
    """The target of a link that declares transactions."""

    NAME = "coordinator"
    CODE = 0x30
    FIELDS = (Field("capabilities", SYMBOLS, ()),)
    __slots__ = names(FIELDS)

    def __init__(self, capabilities: tuple[str, ...] = ()) -> None:
        self.capabilities = capabilities


SOURCE: Final = kind_of(Group("source", [Source]))
TARGET: Final = kind_of(Group("target", [Target, Coordinator]))
