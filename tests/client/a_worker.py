"""A worker as a process of its own: `URL GROUP FILE` writes a line for each event that it has done, and never ends."""

from __future__ import annotations

import sys
from pathlib import Path

from headwater.client import connect


def main(url: str, group: str, file: str) -> None:
    with (
        connect(url) as server,
        Path(file).open("a", encoding="utf-8") as done,
        server.log("orders").work(group, lease_s=1, start="earliest") as work,
    ):
        for batch in work:
            for event in batch:
                done.write(f"{event.sequence_number}\n")
            done.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
