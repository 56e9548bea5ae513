"""Clients that generators make of the OpenAPI documents, in Go, TypeScript and Java: they compile, and they work.

`make interop` generates and compiles them.
"""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from headwater.client import connect
from headwater.core import Event
from tests.client.gateway import Failure, Framing, Gateway
from tests.night import night

from .install import bring, unavailable
from .runtimes import HERE, Generated, OpenapiGenerated, OpenapiGo, OpenapiJava, OpenapiTypescript
from .serving import Broker

GUIDE = HERE.parents[1] / "docs" / "guides" / "other-languages.md"

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


@pytest.mark.parametrize("kind", [OpenapiGo, OpenapiTypescript, OpenapiJava], ids=lambda kind: kind.name)
class TestTheProgramOfTheGuide:
    """`docs/guides/other-languages.md`: read, decide and append, and follow."""

    def test_it_decides_and_follows(self, kind: type[Generated], broker: Broker) -> None:
        program, log = [*built(kind).lending(), broker.url], broker.log()
        assert ran([*program, log, "lend", "17", "ann"]) == (0, "event 1\n")
        assert ran([*program, log, "lend", "17", "bob"]) == (1, "refused: copy 17 is lent to ann\n")
        assert ran([*program, log, "lend", "18", "bob"]) == (0, "event 2\n")
        assert ran([*program, log, "follow", "2"]) == (0, "1 CopyLent\n2 CopyLent\n")

    def test_of_many_who_want_one_copy_one_has_it(self, kind: type[Generated], broker: Broker) -> None:
        command = [*built(kind).lending(), broker.url, broker.log(), "lend", "17"]
        racing = [subprocess.Popen([*command, f"member{n}"], stdout=subprocess.PIPE, text=True) for n in range(4)]
        told = [process.communicate(timeout=60)[0] for process in racing]
        assert sorted(process.returncode for process in racing) == [0, 1, 1, 1], told
        assert sum(line.startswith("event") for line in told) == 1, told

    def test_who_follows_sees_what_comes(self, kind: type[Generated], broker: Broker) -> None:
        program, log = [*built(kind).lending(), broker.url], broker.log()
        with subprocess.Popen([*program, log, "follow", "1"], stdout=subprocess.PIPE, text=True) as following:
            try:
                assert ran([*program, log, "lend", "17", "ann"]) == (0, "event 1\n")
                assert following.communicate(timeout=60)[0] == "1 CopyLent\n"
            finally:
                following.kill()

    def test_a_read_that_broke_off_behind_a_proxy_decides_nothing(self, kind: type[Generated], broker: Broker) -> None:
        program, log = built(kind).lending(), broker.log()
        with connect(broker.url) as client:
            orders = client.log(log)
            orders.append([Event("CopyReturned", tags=("copy:17",))] * 1500)
            last = orders.append([Event("CopyLent", b'{"member": "ann"}', ("copy:17",))]).last
            with Gateway(int(broker.url.rpartition(":")[2])) as gateway:
                command = [*program, gateway.url, log, "lend", "17", "bob"]
                assert ran(command) == (1, "refused: copy 17 is lent to ann\n")
                for cut in (0, 100, 50_000):
                    gateway.cuts.append(cut)
                    done, said = ran(command)
                    assert done != 0 and "lent to" not in said
            assert orders.head() == last

    def test_what_a_proxy_ends_or_answers_is_an_error(self, kind: type[Generated], broker: Broker) -> None:
        program, log = built(kind).lending(), broker.log()
        with connect(broker.url) as client, Gateway(int(broker.url.rpartition(":")[2])) as gateway:
            client.log(log).append([Event("CopyLent", b'{"member": "ann"}', ("copy:17",))] * 20)
            command = [*program, gateway.url, log]
            for cut in (0, 1000):
                gateway.cuts.append(cut)
                done, said = ran([*command, "follow", "20"])
                assert done == 1 and len(said.splitlines()) < 20, said
            gateway.to_streams = Failure(502)
            done, said = ran([*command, "follow", "20"])
            assert done == 1 and re.search("Bad day|502", said), said
            gateway.framing, gateway.passes_lengths = Framing.LENGTH, False
            for failures, cuts, told in (
                ([Failure(502)], [], "Bad day|502"),
                ([None, Failure(502)], [], "Bad day|502"),
                ([None, Failure(502, body=b"")], [], "append|502"),
                ([], [0], "."),
            ):
                gateway.failures += failures
                gateway.cuts += cuts
                done, said = ran([*command, "lend", "18", "bob"])
                assert done == 1 and re.search(told, said) and "undefined" not in said, said

    def test_the_guide_links_to_it(self, kind: type[Generated]) -> None:
        [source] = [path for path in kind().sources.rglob("*") if path.name in ("Lend.java", "lend.ts", "main.go")
                    and "lend" in str(path.relative_to(kind().sources)).lower()]  # fmt: skip
        assert f"](../../{source.relative_to(HERE.parents[1])})" in GUIDE.read_text(encoding="utf-8")


@night
@pytest.mark.timeout(900)
def test_what_a_generator_makes_by_its_defaults_compiles_appends_and_reads(broker: Broker) -> None:
    """By day `tests/dcb/test_openapi.py` keeps what they stumbled over out of the document."""
    pytest.importorskip("pydantic")
    runtime = OpenapiGenerated()
    bring(runtime)
    log, said = broker.log(), []
    for number, (name, command) in enumerate(runtime.commands().items(), 1):
        said.append(f"{number} by {'okhttp' if name == 'java' else 'urllib3' if name == 'python' else name}\n")
        assert ran([*command, broker.url, log]) == (0, "".join(said))


def ran(command: list[str]) -> tuple[int, str]:
    """How a program ended, and what it said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout
