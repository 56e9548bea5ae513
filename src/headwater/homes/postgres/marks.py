"""Marks that commands write into a home while they change all of it, or afterwards. A marked home grants no lease.

Each mark says how to continue. The mark of a server whose copy is ahead begins differently from all of these.
"""

REFILL = "a refill from the copy of "
"""The beginning of a mark while only refills have committed since the home was rolled back."""
REFILLING = REFILL + "{} has not ended: repeat headwater home refill there"
UNPROVED = REFILL + (
    "{} has ended, but another copy may have more: this one did not hold the newest term, or cannot prove that it has "
    "all of it"
)
MOVING = "a data directory is moving into this home: repeat headwater home init --from there"
"""The mark while a home gets the logs of the only directory that has them."""
REVIVING = "a new home is being made from a copy: repeat headwater home init --from there"
"""The mark while a home gets the logs of a copy of another database. Other copies may have more events."""
LEAVING = "a copy is leaving this home: repeat headwater home leave there, or stay by headwater home refill there"
ENDED = "this home has ended: its logs went with the data directory of "
"""The beginning of the mark of a home that has ended because a copy left it."""
FORGOTTEN = "{}; {} was removed from the members (headwater home forget), but its data directory is unchanged"
"""The mark after the evidence that the home lost events was removed with its member."""
