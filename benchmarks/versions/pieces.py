"""All pieces, by name."""

from __future__ import annotations

import importlib

from .piece import Piece

NAMES = {
    "lake": (
        "archive-write",
        "archive-commit",
        "archive-read",
        "archive-column",
        "archive-compact",
        "projection-write",
        "projection-read",
        "projection-entity",
    ),
    "stored": (
        "open-logs",
        "open-segments",
        "read-points",
        "read-all",
        "read-first",
        "append-singles",
        "append-batches",
        "backup",
        "restore",
    ),
}
"""By module: a process loads the one that it needs."""
PIECES = tuple(name for names in NAMES.values() for name in names)


def piece_of(name: str) -> Piece:
    """The piece of that name."""
    module = next(module for module, names in NAMES.items() if name in names)
    pieces: tuple[Piece, ...] = importlib.import_module(f".{module}", __package__).PIECES
    return next(piece for piece in pieces if piece.name == name)
