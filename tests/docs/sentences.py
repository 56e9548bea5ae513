"""Counts the turns of phrase that make a sentence hard to read, by folder: of documents, help and messages, docstrings.

python -m tests.docs.sentences          writes the counts that fell into sentences.json; refuses to raise one
python -m tests.docs.sentences anew     lists where a turn is
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .commands import commands, help_of
from .documents import DOCUMENTS, GENERATED_FROM_CODE, name_of, prose
from .sources import SOURCES, texts_of

COUNTS = Path(__file__).with_name("sentences.json")
WAYS = {
    "is told": r"\b(?:is|are|was|were|be|been) told\b",
    "is to be": r"\b(?:is|are|was|were) to be\b",
    "nobody": r"\bnobody\b",
    "Who ... does": r"(?:^|[.;:|] )[Ww]ho\b(?=[^.?!]*(?:[.;!|]|$))",
    "for who": r"\b(?:for|from|to|by|of|with|than) who\b",
    "anew": r"\banew\b",
    "of which": r"\bof which\b",
    "all the same": r"\ball the same\b",
    "what is": r"\bwhat (?:is|are|was|were|has|have|had|comes?|came|goes|went|waits?|waited|follows?|followed)\b",
    "those that": r"\bthose (?:that|who|which)\b",
}
"""Each by its name: a regular expression, in any case but for its own capitals, over text without line ends."""
INSTEAD = "write subject, verb and object, one fact a sentence, in the words that a reader would search for"

Counts = Mapping[str, Mapping[str, Mapping[str, int]]]
"""By kind of text, by folder, by way; what is not there is 0."""


class Rise(Exception):
    """A count is above the one that was committed."""


class Text(NamedTuple):
    """A piece of text, and where it is."""

    kind: str
    folder: str
    place: str
    text: str

    def found(self, way: str) -> list[str]:
        """Where that turn is in it, each with some words around it."""
        plain, flags = " ".join(self.text.split()), 0 if way == "Who ... does" else re.IGNORECASE
        return [plain[max(0, at.start() - 30) : at.end() + 30] for at in re.finditer(WAYS[way], plain, flags)]


def texts() -> Iterator[Text]:
    """All that the project says."""
    for document in DOCUMENTS:
        if (name := name_of(document)) not in GENERATED_FROM_CODE:
            yield Text("documents", name_of(document.parent), name, prose(document))
    for path in commands():
        yield Text("help and messages", "--help", f"headwater {path}", help_of(path))
    for source in SOURCES:
        name, said = name_of(source), texts_of(source)
        folder = "/".join(name.split("/")[:-1][:3])
        yield from (Text("help and messages", folder, f"{name}:{line}", text) for line, text in said.messages)
        yield from (Text("docstrings", folder, f"{name}:{line}", text) for line, text in said.docstrings)


@cache
def present() -> Counts:
    """The counts of now."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for each in texts():
        of_folder = counts.setdefault(each.kind, {}).setdefault(each.folder, Counter())
        for way in WAYS:
            of_folder[way] += len(each.found(way))
    return {
        kind: {
            folder: kept
            for folder, of_folder in sorted(folders.items())
            if (kept := {way: of_folder[way] for way in WAYS if of_folder[way]})
        }
        for kind, folders in counts.items()
    }


def committed() -> Counts:
    """The counts that were committed."""
    counts: Counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    return counts


def changes(before: Counts, after: Counts) -> Iterator[tuple[str, int, int]]:
    """What differs: its kind, folder and way, and how many there were and are."""
    keys = {
        (kind, folder, way)
        for counts in (before, after)
        for kind, folders in counts.items()
        for folder, ways in folders.items()
        for way in ways
    }
    for kind, folder, way in sorted(keys):
        old, new = (counts.get(kind, {}).get(folder, {}).get(way, 0) for counts in (before, after))
        if old != new:
            yield f"{kind} of {folder}, {way!r}", old, new


def risen(before: Counts, after: Counts) -> list[str]:
    """What is there more often than it was."""
    return [f"{what}: {new} times, {old} are allowed" for what, old, new in changes(before, after) if new > old]


def lower(before: Counts, after: Counts) -> str:
    """The text of the file with the counts of now. Raises Rise where one is above the one that was committed."""
    if problems := risen(before, after):
        raise Rise("\n".join(problems))
    return json.dumps(after, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the counts, or list the places of one way."""
    if arguments:
        for each in texts():
            for found in each.found(arguments[0]):
                print(f"{each.place}: ...{found}...")
        return 0
    try:
        COUNTS.write_text(lower(committed() if COUNTS.exists() else present(), present()), encoding="utf-8")
    except Rise as error:
        print(f"{error}\n{INSTEAD}; nothing was written", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
