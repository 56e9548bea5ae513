"""The acts in their order. An act is a module with a `TITLE` and a function `play(stage)`; a new one is added here."""

from __future__ import annotations

from . import clock, crash, decide, load, messages, push, results, spark, start

ACTS = (start, load, decide, messages, push, crash, clock, spark, results)
