"""Whether anybody listens on a bus, as an emitter finds out: only then it is asked to build the attributes."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.core import Bus, NotificationType


class _Asked(Exception):
    """The attributes would be built. Raised instead, so that no listener gets anything."""


def is_listened_to(bus: Bus, type: NotificationType) -> bool:
    """Whether somebody listens to that type."""

    def build() -> Mapping[str, str]:
        raise _Asked

    try:
        bus.emit_built(type, build)
    except _Asked:
        return True
    return False
