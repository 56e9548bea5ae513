"""The colours of the console as declared: texts 4.5 : 1 on their grounds, series 3 : 1 on cards (WCAG 2.2)."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

STYLE = files("headwater.console").joinpath("static", "style.css").read_text(encoding="utf-8")
TOKENS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{3,6}), (#[0-9a-f]{3,6})\)", STYLE)
}
GROUNDS = ("paper", "card", "sunk", "rail")


def brightness(colour: str) -> float:
    """The relative luminance of a colour (WCAG 2.2)."""
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str, scheme: int) -> float:
    """Of two tokens, in light (0) or dark (1)."""
    a, b = (brightness(TOKENS[name][scheme]) + 0.05 for name in (one, other))
    return max(a, b) / min(a, b)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_can_be_read(scheme: int) -> None:
    pairs = [(text, ground) for text in ("ink", "ink2", "ink3") for ground in GROUNDS]
    pairs += [("ink", "pick"), ("ink2", "pick"), ("accent", "pick"), ("accent", "card"), ("accent", "paper")]
    pairs += [("accent", "sunk"), ("on-accent", "accent"), ("on-accent", "bad")]
    pairs += [(kind, ground) for kind in ("good", "warn", "bad") for ground in ("card", "paper", "rail", f"{kind}-bg")]
    found = {pair: round(contrast(*pair, scheme), 2) for pair in pairs}
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_series_can_be_told_from_the_card(scheme: int) -> None:
    found = {name: round(contrast(name, "card", scheme), 2) for name in TOKENS if re.fullmatch(r"s\d|other", name)}
    assert len(found) == 7 and {name: ratio for name, ratio in found.items() if ratio < 3} == {}
