"""A world in which everything was written, once for a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cases import AMQP_CASES, CASES
from .world import World, served
from .writers import WRITERS


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server whose log is empty, with a webhook that listens."""
    with served(tmp_path_factory.mktemp("world")) as world:
        world.listen()
        yield world


@pytest.fixture(scope="module")
def written(world: World) -> World:
    """The same, with every case that a writer can say, of each writer."""
    for writer in WRITERS:
        for case in (*CASES, *(AMQP_CASES if writer.name == "amqp" else ())):
            world.write_or_not(writer, case)
    world.look()
    return world
