"""The table of settings in docs/reference/configuration.md, from where the settings are declared.

`python -m tests.docs.configuration` writes it. The meaning of a setting is the docstring below its field, or, where
there is none, the line that `headwater serve --help` says.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from headwater.server.config.effective import show_value
from headwater.server.config.settings import SECTIONS, SETTINGS, Config

from .documents import ROOT, table, with_table

PAGE = ROOT / "docs" / "reference" / "configuration.md"
MARKER = "written by python -m tests.docs.configuration"


def written(page: str) -> str:
    """The page with the table of settings that the declarations make."""
    return with_table(page, MARKER, table(("key", "default", "meaning"), rows()))


def rows() -> Iterator[tuple[str, str, str]]:
    """The rows of the table."""
    texts = {name: docstrings(section) for name, section in {"": Config, **SECTIONS}.items()}
    for key, setting in SETTINGS.items():
        section, _, name = key.rpartition(".")
        summary = f"{setting.summary[0].upper()}{setting.summary[1:]}."
        yield f"`{key}`", default(key, setting.default), texts[section].get(name, summary)


def default(key: str, value: Any) -> str:
    """A default as it could be written in the environment."""
    if value in (None, (), ""):
        return "none"
    return f"`{', '.join(value)}`" if isinstance(value, tuple) else "`{}`".format(show_value(key, value).strip('"'))


def docstrings(section: type) -> dict[str, str]:
    """The docstrings below the fields of a class, each on one line."""
    (declared,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(declared, ast.ClassDef)
    found = {}
    for field, below in zip(declared.body, declared.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = " ".join(text.split())
    return found


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
