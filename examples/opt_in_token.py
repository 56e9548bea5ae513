"""A double opt-in: a token is mailed, and confirms an address once, within an hour. No table of tokens is needed.

python examples/opt_in_token.py [http://127.0.0.1:8080]
"""

import sys
import time
from typing import Annotated

from headwater.client import connect
from headwater.decisions import Decision, Projection, Tag, decide, event

VALID_MS = 60 * 60 * 1000


class Refused(Exception):
    """The token confirms nothing."""


@event
class SignUpBegun:
    token: Annotated[str, Tag]
    address: Annotated[str, Tag]


@event
class SignUpConfirmed:
    token: Annotated[str, Tag]
    address: Annotated[str, Tag]


def begun(token: str) -> Projection[tuple[str, int] | None]:
    """The address that the token is for, and when it was mailed."""
    nobody = Projection[tuple[str, int] | None](None, tags={"token": token})
    return nobody.on_stored(SignUpBegun, lambda _, begun, stored: (begun.address, stored.recorded_at))


def is_confirmed(token: str) -> Projection[bool]:
    return Projection(False, tags={"token": token}).on(SignUpConfirmed, lambda _, confirmed: True)


def sign_up(address: str, token: str) -> Decision[SignUpBegun]:
    return Decision(lambda: SignUpBegun(token, address))


def confirm(token: str, now_ms: int) -> Decision[SignUpConfirmed]:
    def rule(mailed: tuple[str, int] | None, confirmed: bool) -> SignUpConfirmed:
        if mailed is None:
            raise Refused("there is no such token")
        address, mailed_ms = mailed
        if confirmed:
            raise Refused(f"{address} is confirmed")
        if now_ms > mailed_ms + VALID_MS:
            raise Refused("the token is too old")
        return SignUpConfirmed(token, address)

    return Decision(begun(token), is_confirmed(token), rule)


def main(url: str) -> None:
    """Tokens that are right, wrong, used and old."""
    now_ms = time.time_ns() // 1_000_000
    with connect(url) as server:
        log = server.create("sign-ups")
        decide(log, sign_up("ann@example.com", "5f0c"))
        decide(log, sign_up("bob@example.com", "77ab"))
        for token, after_ms in (("5f0c", 0), ("5f0c", 0), ("0000", 0), ("77ab", 2 * VALID_MS)):
            try:
                print(f"{decide(log, confirm(token, now_ms + after_ms)).event.address} signed up")
            except Refused as refused:
                print(f"refused, {refused}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
