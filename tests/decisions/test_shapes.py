"""What projections have in common is kept within bounds, whatever a program makes of classes and projections."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headwater.decisions import Projection, shapes
from headwater.decisions.events import described, event
from headwater.decisions.shapes import shape_of


def made(number: int) -> type[Any]:
    """An event class that is defined as a program goes."""
    return event(type=f"made-{number}")(type(f"Made{number}", (), {}))


def test_classes_that_are_made_as_a_program_goes_are_not_kept_without_end() -> None:
    projection, kinds = Projection(0), [made(number) for number in range(100)]
    try:
        for first in kinds:
            for second in [*kinds, *kinds[:10]]:
                projection.on(first, max).on(second, max)
        held = shapes._grown.cache_info()

        assert held.maxsize == shapes.GROWN_MAX and held.currsize <= shapes.GROWN_MAX
        assert vars(shape_of((), False)).keys() == {"keys", "newest_only", "is_kept", "handled", "types", "is_plain"}
    finally:
        for kind in kinds:
            del described[kind]
        shapes._grown.cache_clear()


def test_a_class_that_is_described_anew_is_handled_anew() -> None:
    kind = made(0)
    try:
        before = Projection(0).on(kind, max)
        event(type="another")(kind)

        assert (before.types, Projection(0).on(kind, max).types) == (("made-0",), ("another",))
    finally:
        del described[kind]


def test_threads_that_define_the_same_projection_get_the_same_shape() -> None:
    kind = made(0)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: Projection(0).on(kind, max), range(1000)))

        assert {each.types for each in found} == {("made-0",)}
        assert len({id(each.shape) for each in found}) <= 8  # those that began before the first had ended
    finally:
        del described[kind]
