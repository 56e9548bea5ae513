"""Events of an append that lie in a file already, in the form in which the log keeps them: see `staging.adoption`.

The judge and the sequencer take them like other columns, but as a whole: they are judged, numbered and written at once.
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
    """What the judge and the sequencer ask of them. It is a plain class, because `isinstance` asks every append."""

    __slots__ = ("are_distinct", "hashes", "held_bytes", "runs")

    hashes: Hashes
    """Those of all ids."""
    are_distinct: bool
    """Whether no hash comes twice."""
    runs: list[SortedRun]
    """The postings of each part, numbered from 1 on."""
    held_bytes: int
    """Bytes of hashes and postings; the events are mapped."""

    def numbered(self, first: int) -> Iterator[tuple[int, ArrowColumns]]:
        """Its events, part by part, with the number of the first of each."""
        raise NotImplementedError

    def marks(self, mark: Mark) -> list[Mark]:
        """A mark for each part, of which the last is that of all."""
        raise NotImplementedError

    def refusal(self, why: str) -> NotAdopted:
        """The error that says so."""
        raise NotImplementedError

    def encode(self, first: int, recorded_at: int, link: Chain, marks: Sequence[FrameMark]) -> EncodedFrame:
        """All its frames, numbered from `first` on; their nonces end with that of `link`."""
        raise NotImplementedError
