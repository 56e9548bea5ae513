"""A program that archives log `orders` without Spark, to be killed at any instant: `python -m tests.spark.archiving`.

It does what the pipeline does, in small batches of random size, by the same archiver.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from headwater.flight.client import BulkClient
from headwater.spark.archive.archiver import Archiver, Keeping

from .archive_tables import step


def main(url: str, path: str, is_once: bool) -> None:
    """Archive until killed; or, once, until all is there."""
    with BulkClient(url) as client:
        archiver = Archiver.open(client, "orders", Path(path), keeping=Keeping(is_trimming=True))
        while True:
            head = client.head("orders").head
            if head > archiver.after:
                step(archiver, client, min(head, archiver.after + random.randint(1, 3000)))
            elif is_once:
                return
            else:
                time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["once"])
