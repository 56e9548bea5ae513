"""The acts in their order. An act is a module with a `TITLE` and a function `play(stage)`; a new one is added here."""

from __future__ import annotations

from . import begin, kill, order, results

ACTS = (begin, kill, order, results)
