"""Every file of the package and its one job: the first sentences of the modules, as a page.

`python -m tests.docs.modules > docs/reference/modules.md` makes that page anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .documents import ROOT
from .sources import texts_of

PAGE = ROOT / "docs" / "reference" / "modules.md"
PACKAGE = ROOT / "src" / "headwater"
_END = re.compile(r"(?<![A-Z])\.(?=\s+[A-Z`]|$)")
"""Of a sentence; what follows an initial is none."""
_HEAD = """\
# Every file and its one job

Room by room, as the first sentence of each module says it. For the way through them, read
[ARCHITECTURE](../../ARCHITECTURE.md) first. Made by `python -m tests.docs.modules`: change the module, not this page.
"""


def page() -> str:
    """The text of the page."""
    rooms = sorted({file.parent for file in PACKAGE.rglob("*.py")})
    return "\n".join([_HEAD, *(line for room in rooms for line in _part(room))])


def _part(room: Path) -> Iterator[str]:
    yield f"## `{_name(room)}/`\n"
    if (front := room / "__init__.py").exists():
        yield f"{_first_sentence(front)}.\n"
    if modules := sorted(file for file in room.glob("*.py") if file.name != "__init__.py"):
        yield "| file | its one job |"
        yield "| --- | --- |"
        yield from (f"| `{_name(file)}` | {_first_sentence(file)} |" for file in modules)
        yield ""


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE.parent if path == PACKAGE else PACKAGE).as_posix()


def _first_sentence(file: Path) -> str:
    """Without its full stop, as a cell of a table."""
    docstring = texts_of(file).docstring
    assert docstring, f"{file} does not say what it is for"
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return _END.split(paragraph, maxsplit=1)[0].removesuffix(".").replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
