"""What describes this API: its JSON Schemas, and its OpenAPI document, which holds them all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from .errors import Refused
from .exchange import Exchange
from .host import Host

SCHEMA_TYPE = b"application/schema+json"
PERMISSIVE = "accepted-"
"""What begins the names of the schemas that have every spelling that is taken."""


def _schemas() -> Mapping[str, bytes]:
    found = files(__package__).joinpath("schemas").iterdir()
    return {file.name.removesuffix(".json"): file.read_bytes() for file in sorted(found, key=lambda file: file.name)}


def _document(schemas: Mapping[str, bytes]) -> bytes:
    """The document with the schemas in it, where they need no name of their own.

    What is taken in any spelling is not among them: from a schema of several spellings no client can be generated.
    """
    document: dict[str, Any] = json.loads(files(__package__).joinpath("openapi.json").read_bytes())
    parts = {name: json.loads(text) for name, text in schemas.items() if not name.startswith(PERMISSIVE)}
    for part in parts.values():
        del part["$schema"], part["$id"]
    document["components"] = {"schemas": parts}
    return json.dumps(document).encode()


SCHEMAS = _schemas()
"""The schemas by name: `accepted-...` and `...-request-...` are what is taken, the others what is given."""
OPENAPI = _document(SCHEMAS)


async def openapi(host: Host, exchange: Exchange) -> None:
    """GET /openapi.json"""
    await exchange.answer(200, OPENAPI)


async def schema_names(host: Host, exchange: Exchange) -> None:
    """GET /schemas"""
    await exchange.answer_json(200, list(SCHEMAS))


async def schema(host: Host, exchange: Exchange) -> None:
    """GET /schemas/{name}"""
    name = exchange.arguments[0].removesuffix(".json")
    if name not in SCHEMAS:
        raise Refused(404, f"no such schema; there are: {', '.join(SCHEMAS)}")
    await exchange.answer(200, SCHEMAS[name], SCHEMA_TYPE)
