"""Events of an append that are already in a file, in the log's own format: see `staging.adoption`.

The judge and the sequencer treat them like other columns, but judge, number and write all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...core.limits import EventColumns
from ...core.mark import Mark
from ...formats.arrow.columns import ArrowColumns
from ..frames.encoding import Chain, EncodedFrame
from ..frames.frame_log import NotAdopted
from ..frames.layout import FrameMark
from ..index.ids import Hashes
from ..index.runs import SortedRun


class PreparedColumns(EventColumns):
    """The interface for the judge and the sequencer. A plain class, because each append is tested with `isinstance`."""

    __slots__ = ("are_distinct", "hashes", "held_bytes", "runs")

    hashes: Hashes
    """The hashes of all ids."""
    are_distinct: bool
    """Whether all hashes differ."""
    runs: list[SortedRun]
    """The postings of each part, numbered from 1 on."""
    held_bytes: int
    """The size of hashes and postings in bytes; the events are mapped."""

    def numbered(self, first: int) -> Iterator[tuple[int, ArrowColumns]]:
        """The events, part by part, each with the number of its first event."""
        raise NotImplementedError

    def marks(self, mark: Mark) -> list[Mark]:
        """A mark for each part; the last one is the mark of the whole append."""
        raise NotImplementedError

    def refusal(self, why: str) -> NotAdopted:
        """The error for that reason."""
        raise NotImplementedError

    def encode(self, first: int, recorded_at: int, link: Chain, marks: Sequence[FrameMark]) -> EncodedFrame:
        """All its frames, numbered from `first` on; the last frame has the nonce of `link`."""
        raise NotImplementedError
