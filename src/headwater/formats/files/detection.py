"""Detects the format of a file of events from its name and its beginning. No I/O: name and bytes come in."""

from __future__ import annotations

import re

from ...core.errors import InvalidInput
from ...core.limits import show

FORMATS = ("ndjson", "csv", "cloudevents", "ocel", "parquet")
BEGINNING_BYTES = 64 * 1024
"""How much of a file is enough for detection."""
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonocel": "ocel",
    ".cloudevents": "cloudevents",
    ".parquet": "parquet",
}
_LINES = (".ndjson", ".jsonl")
"""Endings of files with an object per line: events, or CloudEvents."""
_FIRST_OBJECT = re.compile(rb"^[ \t]*\{", re.MULTILINE)
_OCEL = frozenset({"objectTypes", "eventTypes", "objects", "events"})
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?|[\[\]{}]', re.DOTALL)


def guess_format(name: str, beginning: bytes) -> str:
    """One of FORMATS, by the extension or by what the format requires. Raises InvalidInput if none matches."""
    stem = name.lower().removesuffix(".gz")
    for ending, format in _ENDINGS.items():
        if stem.endswith(ending):
            return format
    text = beginning.lstrip(b"\xef\xbb\xbf \t\r\n")
    if stem.endswith(_LINES) and not text.startswith(b"["):  # the first line may be bad
        found = _FIRST_OBJECT.search(text)
        members = set() if found is None else _members(text[found.end() - 1 :])
        return "cloudevents" if "specversion" in members else "ndjson"
    first_line = text.partition(b"\n")[0]
    if text.startswith(b"PAR1"):
        return "parquet"
    if text.startswith((b"{", b"[")):
        members = _members(text)
        if "specversion" in members:
            return "cloudevents"
        if not _OCEL.isdisjoint(members) or any(member.startswith("ocel:") for member in members):
            return "ocel"
        if text.startswith(b"{") and not members.isdisjoint({"type", "event"}):
            return "ndjson"
    elif any(delimiter in first_line for delimiter in (b",", b";", b"\t", b"|")):
        return "csv"
    raise InvalidInput(f"the format of {show(name)} cannot be guessed; give one of {', '.join(FORMATS)}", "--format")


def _members(text: bytes) -> set[str]:
    """The names in the first object (which may be the first element of an array), as far as the text contains them."""
    found, depth, top = set(), 0, 2 if text.startswith(b"[") else 1
    for token in _TOKEN.finditer(text):
        if token[1] is not None:
            if depth == top and token[2]:
                found.add(token[1].decode(errors="replace"))
        elif token[0] in b"[{":
            depth += 1
        else:
            depth -= 1
            if depth < top:
                break
    return found
