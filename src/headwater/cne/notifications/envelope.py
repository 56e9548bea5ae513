"""StarlingX's envelope: an object with one member, named for the kind of state, whose value is an array of events.

    {"ptp_lock_state": [{"specversion": "1.0", "id": ...}]}

Its notification service sends this, and consumers written for it expect that member.
"""

from __future__ import annotations

import msgspec

from ...formats import jsontext
from .addresses import parse
from .document import Members

KEYS = {
    "/sync": "sync",
    "/sync/gnss-status/gnss-sync-status": "gnss_sync_state",
    "/sync/ptp-status/clock-class": "ptp_clock_class",
    "/sync/ptp-status/lock-state": "ptp_lock_state",
    "/sync/sync-status/os-clock-sync-state": "os_clock_sync_state",
    "/sync/sync-status/sync-state": "sync_state",
    "/sync/synce-status/clock-quality": "synce_clock_quality",
    "/sync/synce-status/lock-state-extended": "synce_lock_state_extended",
    "/sync/synce-status/lock-state": "synce_lock_state",
}
"""The member's name by the resource of the subscription, rather than of the event. For other resources it is `sync`."""
_NAMES = frozenset(KEYS.values())
_decoder = msgspec.json.Decoder(dict[str, list[msgspec.Raw]])


def key_of(members: Members) -> str | None:
    """The name of the only member if the object is an envelope; otherwise None."""
    if len(members) != 1:
        return None
    [(key, events)] = members.items()
    return key if key in _NAMES and isinstance(events, list) else None


def sole_event(members: Members) -> Members:
    """The event in an envelope with one event; anything else unchanged."""
    key = key_of(members)
    if key is None or len(members[key]) != 1:
        return members
    [event] = members[key]
    return event if isinstance(event, dict) else members


def events_of(text: bytes, key: str) -> list[bytes]:
    """The events in an envelope's text, each as sent. Raises InvalidInput."""
    jsontext.check_utf8(text)
    return [bytes(raw) for raw in jsontext.decode(_decoder, text)[key]]


def enveloped(event: bytes, resource: str) -> bytes:
    """An event's JSON in the envelope for a subscription to that resource address."""
    return b'{"%b":[%b]}' % (_key_for(resource).encode(), event)


def _key_for(resource: str) -> str:
    """Instances come before the resource (`/././ptp1/sync/...`), like the place."""
    segments = parse(resource).resource
    return KEYS.get("".join(f"/{segment}" for segment in segments), KEYS["/sync"])
