"""A read model that follows a log: catch up, then follow, and go on at the right place after an interruption.

    python examples/follow.py [http://127.0.0.1:8080]

The number up to which the model has seen everything is kept with the model, in one transaction: so each event counts
exactly once, whatever happens in between.
"""

import sqlite3
import sys

from headwater.client import connect
from headwater.core import Event, EventLog, Query

PLACED = Query.where(types=["OrderPlaced"])


def prepare(model: sqlite3.Connection) -> None:
    """The tables of the model, if they are not there."""
    model.execute("CREATE TABLE IF NOT EXISTS orders (customer TEXT PRIMARY KEY, placed INTEGER NOT NULL)")
    model.execute("CREATE TABLE IF NOT EXISTS seen (everything_up_to INTEGER NOT NULL)")


def follow(log: EventLog, model: sqlite3.Connection, *, idle_s: float | None = None) -> None:
    """Count orders by customer; ends when nothing was received for `idle_s` (None: never)."""
    prepare(model)
    (seen,) = model.execute("SELECT coalesce(max(everything_up_to), 0) FROM seen").fetchone()
    with log.subscribe(PLACED, after=seen) as subscription:
        while events := subscription.poll(idle_s):
            with model:
                for event in events:
                    customer = next(tag for tag in event.tags if tag.startswith("customer:"))
                    model.execute(
                        "INSERT INTO orders VALUES (?, 1) ON CONFLICT (customer) DO UPDATE SET placed = placed + 1",
                        (customer,),
                    )
                model.execute("DELETE FROM seen")
                model.execute("INSERT INTO seen VALUES (?)", (subscription.cursor,))


def main(url: str) -> None:
    """Some orders, and the model that counts them."""
    model = sqlite3.connect(":memory:")
    with connect(url) as server:
        log = server.create("followed-orders")
        for number, customer in enumerate(("ann", "bob", "ann")):
            log.append([Event("OrderPlaced", tags=(f"customer:{customer}", f"order:{number}"))])
        follow(log, model, idle_s=0.5)
    for customer, placed in model.execute("SELECT * FROM orders ORDER BY customer"):
        print(f"{customer}: {placed}")
    model.close()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
