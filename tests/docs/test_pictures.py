"""Pictures of the documents: shown somewhere, described in words, readable in light and dark, and true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from headwater.cne.delivery.endpoint import Standing

from .documents import DOCUMENTS, ROOT, check_none, name_of, text_of

PICTURES = sorted((ROOT / "docs" / "images").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
COLOURED = re.compile(r"^\s*(\.?[\w-]+) {.*(?:fill|stroke): #", re.MULTILINE)
SHOWN = re.compile(r"!\[([^\]]+)\]\(([^)\s]+\.svg)\)")
"""Its text for who does not see it, and where it is."""


def texts_of(picture: Path) -> list[str]:
    """What is written in a picture."""
    return ["".join(text.itertext()) for text in ElementTree.parse(picture).iter(f"{SVG}text")]


def faults_of(picture: Path) -> Iterator[str]:
    """What a picture lacks for those who do not see it, or see it in the dark."""
    root = ElementTree.parse(picture).getroot()
    named = {child.get("id"): child.text for child in root if child.tag in (f"{SVG}title", f"{SVG}desc")}
    if root.get("role") != "img" or root.get("aria-labelledby") != "title description":
        yield "it is no image that its title and description label"
    if len(named.get("title") or "") <= 10 or len(named.get("description") or "") <= 100:
        yield "its title or its description is short"
    light, found, dark = (root.findtext(f"{SVG}style") or "").partition("@media (prefers-color-scheme: dark)")
    of_light, of_dark = (set(COLOURED.findall(part)) for part in (light, dark))
    if not found or of_dark != of_light:
        yield f"coloured in light or in dark alone: {sorted(of_light ^ of_dark)}"


def test_pictures_are_described_and_have_colours_for_light_and_dark() -> None:
    assert PICTURES
    check_none(f"{name_of(picture)}: {fault}" for picture in PICTURES for fault in faults_of(picture))


def test_what_a_picture_lacks_is_found(tmp_path: Path) -> None:
    bare = tmp_path / "bare.svg"
    bare.write_text('<svg xmlns="http://www.w3.org/2000/svg"><style>\n.box { fill: #fff }\n</style></svg>')
    assert list(faults_of(bare)) == [
        "it is no image that its title and description label",
        "its title or its description is short",
        "coloured in light or in dark alone: ['.box']",
    ]


def test_every_picture_is_shown_with_a_text_in_its_place() -> None:
    shown = {
        (document.parent / target).resolve(): text
        for document in DOCUMENTS
        for text, target in SHOWN.findall(text_of(document))
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
