"""The streaming query of an archiver: archives one log, batch after batch."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import EventLogError
from .writer import stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline.run import Ending, Run
    from .archiver import Archiver


@dataclass(frozen=True, slots=True)
class Batches:
    """How the batches of a run are made."""

    spark: SparkSession
    run: Run
    events_max: int
    bytes_max: str
    """Approximate size of a batch, as the data source parses sizes."""

    def follow(self, archiver: Archiver, *, is_once: bool) -> Ending:
        """Archive batch after batch. Spark's checkpoint is discarded afterwards: the table defines where the next one
        begins.

        An older checkpoint would make Spark read its last batch again, which the log may have trimmed since.
        """
        problems: list[EventLogError] = []

        def archive(events: DataFrame, _: int) -> None:
            try:
                with archiver.adding():
                    stage(events, archiver.after, archiver.directory)
                    staged = archiver.commit()
                if staged is not None:
                    archiver.release()
            except EventLogError as error:
                problems.append(error)  # this is more specific than Spark's error
                raise

        run = self.run
        checkpoint = archiver.begin_checkpoint(Path(run.checkpoint) if run.checkpoint else None)
        source = run.server.options(
            log=archiver.log,
            streamName=run.stream_name,  # its consumer shows its progress, unless a stream name is also set
            startingPosition=archiver.after + 1,
            maxEventsPerTrigger=self.events_max,
            maxBytesPerTrigger=self.bytes_max,
            minPartitions=self.spark.sparkContext.defaultParallelism,
        )
        try:
            events = self.spark.readStream.format("headwater").options(**source).load()
            return run.follow(events.writeStream, archive, checkpoint=checkpoint.as_uri(), is_once=is_once).ending
        except EventLogError as error:
            raise (problems[0] if problems else error) from error
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
