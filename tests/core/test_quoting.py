"""What messages show of what was given."""

from headwater.core.errors import LogExists
from headwater.core.quoting import cut, show


def test_it_is_quoted_once_and_cut() -> None:
    assert show("x") == "'x'"
    assert show("x" * 100) == "'" + "x" * 76 + "..."
    assert (cut("x"), cut("x" * 100)) == ("x", "x" * 77 + "...")


def test_a_long_name_does_not_fill_a_message() -> None:
    assert len(str(LogExists("x" * 10_000))) < 120
