"""A form that is sent twice is one order: the form brings a key, and the command that comes again is recognised by it.

python examples/double_submission.py [http://127.0.0.1:8080]
"""

import sys
from typing import Annotated

from headwater.client import connect
from headwater.decisions import Decision, Tag, decide, event


@event
class OrderPlaced:
    order: Annotated[str, Tag]
    article: str


def place_order(order: str, article: str) -> Decision[OrderPlaced]:
    return Decision(lambda: OrderPlaced(order, article), emits=[OrderPlaced])


def main(url: str) -> None:
    """A customer clicks twice, and orders again later."""
    with connect(url) as server:
        log = server.create("web-shop")
        for order, form in (("1", "form-5f0c"), ("2", "form-5f0c"), ("3", "form-77ab")):
            decided = decide(log, place_order(order, "hat"), key=form)
            print(f"order {decided.event.order}: {'placed before' if decided.was_stored else 'placed'}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
