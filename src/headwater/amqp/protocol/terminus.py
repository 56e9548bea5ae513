"""The source and target of a link (part 3, section 3.5; the coordinator: part 4, section 4.5.1)."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from .composite import Composite, Group, composite, kind_of
from .fields import BOOLEAN, STRING, SYMBOL, SYMBOL_MAP, SYMBOLS, UINT
from .states import OUTCOME, Outcome
from .types import Described, Symbol

SESSION_END: Final = Symbol("session-end")
"""The default expiry policy."""


@composite("source", 0x28)
class Source(Composite):
    """Where messages come from (3.5.3). `timeout` is in seconds. `durable` is 0 (none), 1 (configuration) or 2
    (unsettled state).
    """

    address: Annotated[str | None, STRING] = None
    durable: Annotated[int, UINT] = 0
    expiry_policy: Annotated[str, SYMBOL] = SESSION_END
    timeout: Annotated[int, UINT] = 0
    dynamic: Annotated[bool, BOOLEAN] = False
    dynamic_node_properties: Annotated[Mapping[Any, Any] | None, SYMBOL_MAP] = None
    distribution_mode: Annotated[str | None, SYMBOL] = None
    filter: Annotated[Mapping[Any, Any] | None, SYMBOL_MAP] = None
    default_outcome: Annotated[Outcome | Described | None, OUTCOME] = None
    outcomes: Annotated[tuple[str, ...], SYMBOLS] = ()
    capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()


@composite("target", 0x29)
class Target(Composite):
    """Where messages go (3.5.4). Units are as in `Source`."""

    address: Annotated[str | None, STRING] = None
    durable: Annotated[int, UINT] = 0
    expiry_policy: Annotated[str, SYMBOL] = SESSION_END
    timeout: Annotated[int, UINT] = 0
    dynamic: Annotated[bool, BOOLEAN] = False
    dynamic_node_properties: Annotated[Mapping[Any, Any] | None, SYMBOL_MAP] = None
    capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()


@composite("coordinator", 0x30)
class Coordinator(Composite):
    """The target of a link that declares transactions."""

    capabilities: Annotated[tuple[str, ...], SYMBOLS] = ()


SOURCE: Final = kind_of(Group("source", [Source]))
TARGET: Final = kind_of(Group("target", [Target, Coordinator]))
