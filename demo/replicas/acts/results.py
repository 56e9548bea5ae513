"""One screen: what was seen, and where to look next."""

from __future__ import annotations

from ..stage import ReplicaStage

TITLE = "What you have seen"
NEXT = (
    ("docs/guides/high-availability.md", "high availability: what is promised, and what is not"),
    ("deploy/three/", "units for three machines, and a load balancer before them"),
    ("make chaos", "the same servers while network and database fail, too"),
)


def play(stage: ReplicaStage) -> None:
    """Show the results."""
    stage.show_results("three servers, PostgreSQL and all clients on this machine", NEXT)
    stage.say("servers, database and data are removed now")
