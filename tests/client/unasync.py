"""Writes the modules of the blocking client: those of the asyncio client, line by line, without `async` and `await`.

`python -m tests.client.unasync` does so. What a task and a thread wait with is in the `primitives` of both packages,
and what else differs between them in their other modules, written by hand.
"""

from __future__ import annotations

import re

from tests.docs.documents import ROOT

CLIENT = ROOT / "src" / "headwater" / "client"
MODULES = ("log", "reading", "server", "subscription", "transport")
RULES = (
    (r"^( *)# sync: ", r"\1"),  # what the blocking client has alone; behind a line: in the next one
    (r"  # sync: ", "\n"),
    (r"\basync (?=def |with )", ""),
    (r"\bawait ", ""),
    (r", (?:awaited|for asyncio)\b", ""),
    (r", by `async (?:for|with)`", ""),
    (r"\b([Aa])n async context manager", r"\1 context manager"),
    (r"\bby a task\b", "by a thread"),
    (r"\bby tasks\b", "by threads"),
    (r"\b(any|another) task\b", r"\1 thread"),
    (r"\bFor the tasks of one event loop\b", "Safe to use from any thread"),
    (r", on one event loop\b", ", for any thread"),
)
"""What is replaced in each line, in this order."""


def blocking(name: str) -> str:
    """The text of a module of the blocking client."""
    source = (CLIENT / "aio" / f"{name}.py").read_text(encoding="utf-8")
    lines = "\n".join(map(_translated, source.split("\n")))
    return f"# Made from aio/{name}.py by python -m tests.client.unasync: change that file, not this one.\n{lines}"


def _translated(line: str) -> str:
    for pattern, replacement in RULES:
        line = re.sub(pattern, replacement, line)
    return line.rstrip()


if __name__ == "__main__":
    for module in MODULES:
        (CLIENT / "sync" / f"{module}.py").write_text(blocking(module), encoding="utf-8")
