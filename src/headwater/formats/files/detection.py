"""Which format a file of events has, by its name and its beginning. No I/O: name and bytes come in."""

from __future__ import annotations

import re

from ...core.errors import InvalidInput
from ...core.limits import show

FORMATS = ("ndjson", "csv", "cloudevents", "ocel", "parquet")
BEGINNING_BYTES = 64 * 1024
"""How much of a file is enough to tell."""
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonocel": "ocel",
    ".cloudevents": "cloudevents",
    ".parquet": "parquet",
}
_EXPORTED = b'{"event":{"type":'
"""How a line of NDJSON begins that was read from a log: its events may say anything."""
_OCEL = re.compile(rb'"ocel:|"(objectTypes|eventTypes)"\s*:')
_SPECVERSION = re.compile(rb'"specversion"\s*:')
_EVENT = re.compile(rb'\{.*("type"|"event")\s*:', re.DOTALL)


def guess_format(name: str, beginning: bytes) -> str:
    """One of FORMATS. Raises InvalidInput where nothing fits."""
    stem = name.lower().removesuffix(".gz")
    for ending, format in _ENDINGS.items():
        if stem.endswith(ending):
            return format
    text = beginning.lstrip(b"\xef\xbb\xbf \t\r\n")
    first_line = text.partition(b"\n")[0]
    if text.startswith(_EXPORTED):
        return "ndjson"
    if text.startswith(b"PAR1"):
        return "parquet"
    if text.startswith((b"{", b"[")):
        if _OCEL.search(text):
            return "ocel"
        if _SPECVERSION.search(text):
            return "cloudevents"
        if _EVENT.match(first_line):
            return "ndjson"
    elif any(delimiter in first_line for delimiter in (b",", b";", b"\t", b"|")):
        return "csv"
    raise InvalidInput(f"the format of {show(name)} cannot be guessed; name one of {', '.join(FORMATS)}", "--format")
