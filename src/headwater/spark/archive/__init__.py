"""Archives: logs copied to Delta tables, durably enough that the server may drop what was copied.

The pipeline `archive` (headwater.spark.jobs.archive) writes them. Spark and any other Delta reader can read them; the
data source `headwater` reads them as the older part of a log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .dataframes import read, views
from .snapshot import ArchiveFile, Snapshot, snapshot

if TYPE_CHECKING:
    from .compaction import compact, vacuum
else:

    def __getattr__(name: str) -> Any:  # writing tables loads deltalake: 280 MiB of address space
        if name in ("compact", "vacuum"):
            from . import compaction

            return getattr(compaction, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["ArchiveFile", "Snapshot", "compact", "read", "snapshot", "vacuum", "views"]
