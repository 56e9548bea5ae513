"""Events that have one odd tag each, and what their tags are the keys of."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.core import Event
from tests.odd_tags import ODD_TAGS

from .world import World

TAGS = (*ODD_TAGS, *[f"{tag}:of this key" for tag in ODD_TAGS if ":" not in tag and len(tag.encode()) < 1000])


def write(world: World) -> Mapping[str, int]:
    """Have them written, and an event of type End; answers the numbers by tag."""
    result = world.log.append([*[Event("Tagged", b"{}", (tag,)) for tag in TAGS], Event("End")])
    return dict(zip(TAGS, range(result.first, result.last), strict=True))
