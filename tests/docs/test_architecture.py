"""ARCHITECTURE.md names what is there, and the import rule that is checked."""

from __future__ import annotations

import re
import tomllib

from .documents import ROOT, check_none, line_of, name_of, prose, text_of
from .sources import SOURCES, texts_of

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PACKAGE = ROOT / "src" / "headwater"
_PATH = re.compile(r"`([\w./-]+(?:\.(?:py|md|yaml|toml|json)|/))`")
ON_DISK = {"META.json", "idx/", "history/", "log/"}
"""Names inside a data directory."""


def _paths() -> list[tuple[int, str]]:
    """The paths that it names, each with its line."""
    text = prose(ARCHITECTURE)
    return [(line_of(text, at.start()), at[1]) for at in _PATH.finditer(text) if at[1] not in ON_DISK]


def test_it_names_paths() -> None:
    assert len({path for _, path in _paths()}) > 40


def test_every_path_exists() -> None:
    check_none(
        f"ARCHITECTURE.md:{line}: {path} is neither in the repository nor in src/headwater"
        for line, path in _paths()
        if not any((base / path).exists() for base in (ROOT, PACKAGE))
    )


def test_every_room_is_named():
    rooms = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    text = text_of(ARCHITECTURE)
    assert [room for room in rooms if f"`{room}/`" not in text] == []


def test_every_module_says_what_it_is_for() -> None:
    check_none(f"{name_of(source)} has no docstring" for source in SOURCES if not texts_of(source).docstring)


def test_who_looks_for_a_rebalance_finds_where_it_is_decided():
    [paragraph] = [part for part in text_of(ARCHITECTURE).split("\n\n") if "**rebalance**" in part]
    assert "`amqp/streams/groups.py`" in paragraph


def test_import_rule_is_that_of_pyproject():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    text = " ".join(text_of(ARCHITECTURE).split())
    assert " > ".join(layers) in text and f"{len(contracts)} contracts" in text


def test_every_room_is_in_a_layer_and_only_one_of_them_may_import_spark():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {contract["name"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}
    layers, pipeline = (
        next(contract for name, contract in contracts.items() if name.startswith(start))
        for start in ("The command line knows", "Only the pipeline")
    )
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {name for layer in layers["layers"] for name in re.findall(r"\w+", layer)} == rooms and layers["exhaustive"]
    assert {name.removeprefix("headwater.") for name in pipeline["source_modules"]} == rooms - {"spark"}
