"""A cart is bought at the prices that the customer saw: old ones are good for ten minutes after a change.

python examples/dynamic_price.py [http://127.0.0.1:8080]
"""

import sys
import time
from collections.abc import Mapping
from typing import Annotated

from headwater.client import connect
from headwater.core import SequencedEvent
from headwater.decisions import Decision, Projection, Several, Tag, decide, event

GRACE_MS = 10 * 60 * 1000


class Refused(Exception):
    """A price that was shown is not valid."""


@event
class PriceSet:
    product: Annotated[str, Tag]
    cents: int


@event
class CartBought:
    products: Annotated[list[str], Tag("product")]
    cents: int


def valid_prices(product: str, now_ms: int) -> Projection[frozenset[int]]:
    def changed(valid: frozenset[int], price: PriceSet, stored: SequencedEvent) -> frozenset[int]:
        is_recent = now_ms < stored.recorded_at + GRACE_MS
        return valid | {price.cents} if is_recent else frozenset([price.cents])

    return Projection(frozenset[int](), tags={"product": product}).on_stored(PriceSet, changed)


def set_price(product: str, cents: int) -> Decision[PriceSet]:
    return Decision(lambda: PriceSet(product, cents))


def buy(shown: Mapping[str, int], now_ms: int) -> Decision[CartBought]:
    def rule(valid: tuple[frozenset[int], ...]) -> CartBought:
        for (product, cents), prices in zip(shown.items(), valid, strict=True):
            if cents not in prices:
                raise Refused(f"{product} does not cost {cents}")
        return CartBought(list(shown), sum(shown.values()))

    return Decision(Several([valid_prices(product, now_ms) for product in shown]), rule)


def main(url: str) -> None:
    """The price of tea rises while customers look at it."""
    now_ms = time.time_ns() // 1_000_000
    with connect(url) as server:
        log = server.create("shop")
        for product, cents in (("tea", 300), ("cake", 450), ("tea", 350)):
            decide(log, set_price(product, cents))
        for tea, later_ms in ((300, 0), (350, 0), (320, 0), (300, 2 * GRACE_MS)):
            try:
                print(f"bought for {decide(log, buy({'tea': tea, 'cake': 450}, now_ms + later_ms)).event.cents}")
            except Refused as refused:
                print(f"refused, {refused}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
