"""The reference page of the configuration says what the declarations of the settings say."""

from __future__ import annotations

from .configuration import PAGE, written


def test_the_table_of_settings_is_what_the_declarations_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run python -m tests.docs.configuration"
