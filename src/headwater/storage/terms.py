"""Which terms some postings have, some at a time: what there is to be asked for. How often each is there: `Numbers`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..core.event import tag_key
from .postings import KEY, TAG, TYPE, ActivePostings, FilePostings, Postings
from .runs import Run

SLOTS_AT_ONCE = 16_384
"""Terms of a file whose beginnings are looked at in one step."""
TEXTS_AT_ONCE = 1024
"""Terms that become texts in one step."""
_COMPARED_BYTES = 8
"""So much of a prefix is compared in all terms of a step at once; the rest in those that are left."""


def terms_of(postings: Postings, kind: str, prefix: str) -> Iterator[list[str]]:
    """The terms of that kind (types, tags or keys of tags) that begin so, in short steps, of which some have none.

    In no order; a key may come again and again.
    """
    if isinstance(postings, FilePostings):
        return _of_file(postings, kind, prefix)
    assert isinstance(postings, ActivePostings | Run), "there are no others"
    if kind == KEY:
        return _keys(postings.texts(TAG, TEXTS_AT_ONCE), prefix)
    return _beginning(postings.texts(kind, TEXTS_AT_ONCE), prefix)


def _beginning(batches: Iterator[Sequence[str]], prefix: str) -> Iterator[list[str]]:
    for texts in batches:
        yield [text for text in texts if text.startswith(prefix)]


def _keys(batches: Iterator[Sequence[str]], prefix: str) -> Iterator[list[str]]:
    """A prefix with a colon is one of no key, and `tag_key` sees to that."""
    for tags in batches:
        yield [key for key in {tag_key(tag) for tag in tags if tag.startswith(prefix)} if key.startswith(prefix)]


def _of_file(postings: FilePostings, kind: str, prefix: str) -> Iterator[list[str]]:
    wanted = (kind + prefix).encode()
    offsets, content = np.asarray(postings.text_offsets), np.asarray(postings.texts)
    for start in range(0, len(postings.hashes), SLOTS_AT_ONCE):
        stop = min(start + SLOTS_AT_ONCE, len(postings.hashes))
        begins, ends = offsets[start:stop].astype(np.int64), offsets[start + 1 : stop + 1].astype(np.int64)
        is_long = ends - begins >= len(wanted)
        begins, ends = begins[is_long], ends[is_long]
        for at, byte in enumerate(wanted[:_COMPARED_BYTES]):
            is_same = content[begins + at] == byte
            begins, ends = begins[is_same], ends[is_same]
        yield []
        for at in range(0, len(begins), TEXTS_AT_ONCE):
            places = zip(begins[at : at + TEXTS_AT_ONCE].tolist(), ends[at : at + TEXTS_AT_ONCE].tolist(), strict=True)
            texts = [bytes(postings.texts[begin:end]) for begin, end in places]
            yield [text[1:].decode() for text in texts if text.startswith(wanted)]


def type_names(postings: Postings, most: int) -> Iterator[list[str] | None]:
    """In steps that answer None, and one last: the types that occur, so many at most."""
    found: list[str] = []
    for batch in terms_of(postings, TYPE, ""):
        found += batch
        if len(found) >= most:
            break
        yield None
    yield found[:most]
