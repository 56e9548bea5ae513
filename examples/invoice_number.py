"""Invoices have numbers without gaps, however many are made at once. Only the newest invoice is read.

python examples/invoice_number.py [http://127.0.0.1:8080]
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from headwater.client import connect
from headwater.decisions import Decision, Projection, Retries, decide, event


@event
class InvoiceMade:
    number: int
    customer: str


LAST_NUMBER = Projection(0, newest_only=True).on(InvoiceMade, lambda _, made: made.number)


def make_invoice(customer: str) -> Decision[InvoiceMade]:
    return Decision(LAST_NUMBER, lambda last: InvoiceMade(last + 1, customer))


def main(url: str) -> None:
    """Ten invoices at once."""
    with connect(url) as server, ThreadPoolExecutor(4) as pool:
        log = server.create("invoices")
        patient = Retries(attempts=100)

        def made(customer: str) -> int:
            return decide(log, make_invoice(customer), retries=patient).event.number

        print(sorted(pool.map(made, [f"customer {number}" for number in range(10)])))


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
