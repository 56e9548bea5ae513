"""Clients that generators make of the OpenAPI documents, in Go and TypeScript: they compile, and they work.

`make interop` generates and compiles them.
"""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from .install import unavailable
from .runtimes import Generated, OpenapiGo, OpenapiTypescript
from .serving import Broker

pytestmark = pytest.mark.timeout(180)


def built(kind: type[Generated]) -> Generated:
    """The client; without it the test is skipped, or fails where everything must be there."""
    runtime = kind()
    if reason := runtime.missing():
        unavailable(reason)
    return runtime


@pytest.mark.parametrize("kind", [OpenapiGo, OpenapiTypescript], ids=lambda kind: kind.name)
def test_a_generated_client_appends_reads_and_is_told_why_a_condition_fails(
    kind: type[Generated], broker: Broker
) -> None:
    command = [*built(kind).command(), broker.url, broker.log()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["appended"] == {"sequence_number": 1, "first_sequence_number": 1, "was_stored": False}
    [envelope] = told["read"]
    assert envelope["sequence_number"] == 1 and envelope["event"]["data"] == '{"capacity":10}'
    assert envelope["recorded_at"] > 2**31, "milliseconds do not fit into 32 bits"
    assert (told["head"], told["status"], told["states"]) == ("1", 409, [])
    problem = told["problem"]
    assert problem["type"] == "urn:headwater:problem:append_condition_failed"
    assert (problem["reason"], problem["after"], problem["sequence_number"]) == ("no_match_expected", 0, 1)


def test_typescript_refuses_what_is_misspelt_and_nothing_else() -> None:
    runtime = built(OpenapiTypescript)
    assert isinstance(runtime, OpenapiTypescript)
    lines = (runtime.sources / "misspelt.ts").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("// wrong")}
    with pytest.raises(subprocess.CalledProcessError) as caught:
        runtime.compile("misspelt.json")
    refused = set(map(int, re.findall(r"^misspelt\.ts\((\d+),", caught.value.stdout, re.MULTILINE)))
    assert refused == wrong, caught.value.stdout
