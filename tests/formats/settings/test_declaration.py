"""Values of settings, from TOML and from strings."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.formats.settings.declaration import (
    boolean,
    byte_count,
    duration_ms,
    one_of,
    path,
    show_bytes,
    show_duration,
    text,
    texts,
    toml,
    whole_number,
)


@pytest.mark.parametrize(
    ("given", "read"),
    [("64MiB", 2**26), ("10 GB", 10**10), ("12", 12), (12, 12), ("0B", 0), ("1TiB", 2**40), ("3kB", 3000)],
)
def test_sizes_have_units(given: object, read: int) -> None:
    assert byte_count(0, 2**50)(given) == read


@pytest.mark.parametrize(
    ("given", "read"), [("7d", 604_800_000), ("12h", 43_200_000), ("5m", 300_000), ("30s", 30_000), ("5ms", 5), (5, 5)]
)
def test_durations_have_units(given: object, read: int) -> None:
    assert duration_ms(0, 10**12)(given) == read


@pytest.mark.parametrize("given", ["64mib", "MiB", "-1", "1.5GiB", "", None, True, 2**51, [1]])
def test_a_malformed_size_is_shown_with_what_is_allowed(given: object) -> None:
    with pytest.raises(ValueError, match=r"expected 0 to 1PiB|expected 0 to 1024TiB.*MiB"):
        byte_count(0, 2**50)(given)


def test_a_duration_out_of_range_is_shown_with_the_range() -> None:
    with pytest.raises(ValueError, match=r"expected 1s to 7d.*got '8d'"):
        duration_ms(1000, 604_800_000)("8d")


@pytest.mark.parametrize("given", ["8O", "-1", 65536, True, 1.0, None, "٣"])
def test_a_malformed_number_is_shown_with_the_range(given: object) -> None:
    with pytest.raises(ValueError, match="expected a whole number from 0 to 65535"):
        whole_number(0, 65535)(given)


def test_words_and_booleans_come_from_toml_and_strings_alike() -> None:
    assert whole_number(0, 9)(" 7 ") == 7
    assert [boolean(value) for value in (True, "true", "False")] == [True, True, False]
    assert one_of("disk", "memory")("Memory") == "memory"
    assert texts("10.0.0.1, 10.0.0.2") == texts(["10.0.0.1", "10.0.0.2"]) == ("10.0.0.1", "10.0.0.2")
    assert text(" x ") == "x"
    assert path("~/data") == Path.home() / "data"


@pytest.mark.parametrize(
    ("read", "given"),
    [(boolean, "yes"), (boolean, 1), (one_of("a", "b"), "c"), (texts, 7), (texts, [7]), (text, ""), (path, 7)],
)
def test_what_does_not_fit_is_refused(read: object, given: object) -> None:
    assert callable(read)
    with pytest.raises(ValueError, match=r"expected .*, got "):
        read(given)


def test_quantities_are_shown_in_their_largest_unit() -> None:
    assert [show_bytes(count) for count in (0, 1000, 2**20, 3 * 2**30, 2**20 + 1)] == [
        "0",
        "1000B",
        "1MiB",
        "3GiB",
        "1048577B",
    ]
    assert [show_duration(count) for count in (1, 1500, 60_000, 604_800_000)] == ["1ms", "1500ms", "1m", "7d"]


def test_values_are_written_as_toml() -> None:
    assert [toml(value) for value in (True, 7, 'a"b\n', ("x", "y"), Path("d"))] == [
        "true",
        "7",
        r'"a\"b\n"',
        '["x", "y"]',
        '"d"',
    ]
