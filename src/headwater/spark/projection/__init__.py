"""Projections: the events of a log, folded by a tag into a table with the latest state of every entity.

The pipeline `project` creates them with Spark. Reading one needs neither Spark nor the server:

    from headwater.spark.projection import snapshot
    position, states = snapshot("/data/baskets", ["basket:17"])
"""

from .errors import FoldFailed, NotAProjection, ProjectionError, ProjectionOvertaken
from .snapshot import Snapshot, dump, snapshot

__all__ = ["FoldFailed", "NotAProjection", "ProjectionError", "ProjectionOvertaken", "Snapshot", "dump", "snapshot"]
