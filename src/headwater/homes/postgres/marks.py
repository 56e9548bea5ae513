"""Texts that commands write into a home while they change all of it, or after: no server gets the lease meanwhile.

Each says how to go on. A server that finds its copy ahead writes another one, which begins like none of these.
"""

REFILL = "a refill from the copy of "
"""How a mark begins while nothing was committed since the home went back but by refills."""
REFILLING = REFILL + "{} has not ended: repeat headwater home refill there"
UNPROVED = REFILL + (
    "{} has ended, but another copy may have more: this one did not hold the newest term, or cannot prove that it has "
    "all of it"
)
MOVING = "a data directory is moving into this home: repeat headwater home init --from there"
"""While a home gets the logs of the only directory that has them."""
REVIVING = "a new home is being made from a copy: repeat headwater home init --from there"
"""While it gets those of the copy of another database: other copies may have more."""
LEAVING = "a copy is leaving this home: repeat headwater home leave there, or stay by headwater home refill there"
ENDED = "this home has ended: its logs went with the data directory of "
"""How the mark of a home begins that a copy has left, for ever."""
