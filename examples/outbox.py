"""An event that happens exactly when a database transaction does: the outbox, and the relay that empties it.

    python examples/outbox.py [http://127.0.0.1:8080]

In a real system `headwater relay shop.sqlite orders` is a process of its own; killing it, or the server, loses nothing.
"""

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from headwater.client import connect
from headwater.client.outbox import Relay, add_xfer_event, create_table


class TooMany(Exception):
    """There are not so many left."""


def prepare(shop: sqlite3.Connection) -> None:
    """Three hats, and the outbox."""
    with shop:
        create_table(shop)
        shop.execute("CREATE TABLE stock (article TEXT PRIMARY KEY, pieces INTEGER NOT NULL)")
        shop.execute("INSERT INTO stock VALUES ('hat', 3)")


def sell(shop: sqlite3.Connection, article: str, pieces: int) -> None:
    """Sell, and say so: both, or neither. Raises TooMany."""
    with shop:
        add_xfer_event(shop, "ARTICLE_SOLD", {"article": article, "pieces": pieces})
        left = "UPDATE stock SET pieces = pieces - ? WHERE article = ? RETURNING pieces"
        ((remaining,),) = shop.execute(left, (pieces, article)).fetchall()
        if remaining < 0:
            raise TooMany(f"{article}: {pieces} wanted, {remaining + pieces} are there")


def main(url: str) -> None:
    """Two sales, of which one cannot be, and what the log hears of them."""
    with tempfile.TemporaryDirectory() as directory, connect(url) as server:
        path = Path(directory) / "shop.sqlite"
        with closing(sqlite3.connect(path)) as shop, closing(sqlite3.connect(path)) as its:
            prepare(shop)
            for pieces in (2, 2):
                try:
                    sell(shop, "hat", pieces)
                except TooMany as error:
                    print(error)
            log = server.create("sales")
            Relay(its, log).run_once()
            for event in log.read():
                print(event.sequence_number, event.type, event.data.decode())


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
