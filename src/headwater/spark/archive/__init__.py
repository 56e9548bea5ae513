"""Archives: logs copied to Delta tables, safely enough that the server may forget what was copied.

The pipeline `archive` (headwater.spark.jobs.archive) writes them. They are read by Spark, by everything else that knows
Delta tables, and by the data source `headwater` as the older part of a log.
"""

from .compaction import compact, vacuum
from .reading import read, views
from .snapshot import ArchiveFile, Snapshot, snapshot

__all__ = ["ArchiveFile", "Snapshot", "compact", "read", "snapshot", "vacuum", "views"]
