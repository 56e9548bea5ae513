"""Pictures of the documents: shown somewhere, described in words, readable in light and dark, and true."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headwater.cne.endpoint import Standing

from .documents import DOCUMENTS, ROOT, name_of

PICTURES = sorted((ROOT / "docs" / "images").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
SHOWN = re.compile(r"!\[([^\]]+)\]\(([^)\s]+\.svg)\)")
"""Its text for who does not see it, and where it is."""


def texts_of(picture: Path) -> list[str]:
    """What is written in a picture."""
    return ["".join(text.itertext()) for text in ElementTree.parse(picture).iter(f"{SVG}text")]


@pytest.mark.parametrize("picture", PICTURES, ids=name_of)
def test_a_picture_is_described_and_has_colours_for_light_and_dark(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    named = {child.get("id"): child.text for child in root if child.tag in (f"{SVG}title", f"{SVG}desc")}
    assert root.get("role") == "img" and root.get("aria-labelledby") == "title description"
    assert len(named["title"] or "") > 10 and len(named["description"] or "") > 100
    light, found, dark = (root.findtext(f"{SVG}style") or "").partition("@media (prefers-color-scheme: dark)")
    of_light, of_dark = (set(re.findall(r"^\s*(\.?[\w-]+) {.*(?:fill|stroke): #", part, re.MULTILINE))
                         for part in (light, dark))  # fmt: skip
    assert found and of_dark == of_light


def test_every_picture_is_shown_with_a_text_in_its_place() -> None:
    shown = {
        (document.parent / target).resolve(): text
        for document in DOCUMENTS
        for text, target in SHOWN.findall(document.read_text(encoding="utf-8"))
    }
    assert set(shown) == set(PICTURES)
    assert all(len(text) > 30 for text in shown.values())


def test_the_states_of_a_webhook_are_those_of_the_code() -> None:
    texts = texts_of(ROOT / "docs" / "images" / "webhook.svg")
    assert {state.value for state in Standing} <= set(texts)


def test_the_archive_is_acknowledged_before_the_log_is_trimmed() -> None:
    texts = texts_of(ROOT / "docs" / "images" / "archive.svg")
    steps = [text for text in texts if text[:1].isdigit() and ". " in text]
    assert steps == ["1. archive", "2. acknowledge", "3. trim"]
