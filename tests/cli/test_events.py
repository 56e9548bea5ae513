import json
import shlex

import pytest
from tests.odd_tags import ODD_TAGS, matching

from headwater.cli.main import REFUSED, UNREACHABLE, USAGE
from headwater.client import RemoteLog
from headwater.core import Event


def test_append_tells_the_number(headwater, log: RemoteLog) -> None:
    done = headwater(
        "append", "orders", "--type", "OrderPlaced", "--tag", "order:17", "--data", "{}", "--attribute", "subject=s"
    )
    assert done == (0, "event 1 appended\n", "")
    (event,) = log.read()
    assert (event.type, event.data, event.tags, event.attributes) == (
        "OrderPlaced", b"{}", ("order:17",), {"subject": "s"},
    )  # fmt: skip


def test_append_reads_data_from_stdin(headwater, log: RemoteLog) -> None:
    headwater("append", "orders", "--type", "A", "--data", "-", stdin=b"\xff\x00")
    assert next(log.read()).data == b"\xff\x00"


def test_append_takes_a_file_of_events_all_at_once_and_again(headwater, log: RemoteLog) -> None:
    lines = b'{"type":"A","id":"1"}\n{"type":"B","id":"2","tags":["x:1"]}\n'
    assert headwater("append", "orders", "--events", "-", stdin=lines).out == "events 1 to 2 appended\n"
    again = headwater("append", "orders", "--events", "-", "--json", stdin=lines)
    assert json.loads(again.out) == {"first": 1, "last": 2, "was_stored": True}
    assert log.head() == 2


def test_a_failed_condition_is_refused_with_the_conflict(headwater, log: RemoteLog) -> None:
    log.append([Event("A", tags=("x:1",))])
    done = headwater("append", "orders", "--type", "A", "--fail-if-match", "tag=x:1")
    assert (done.code, done.out) == (REFUSED, "")
    assert "event 1 matches the query and comes after 0" in done.err
    assert headwater("append", "orders", "--type", "A", "--fail-if-match", "tag=x:1", "--after", "1").code == 0


def test_read_shows_lines_for_people(headwater, log: RemoteLog) -> None:
    log.append([Event("A", b'{"n":\n1}', ("x:1",)), Event("B", b"\xff" * 500)])
    first, second = headwater("read", "orders").out.splitlines()
    assert first.split()[0] == "1"
    assert first.endswith('A  x:1  {"n": 1}')
    assert second.endswith("<500 bytes>")


def test_read_gives_programs_what_can_be_appended_again(headwater, log: RemoteLog) -> None:
    log.append([Event("A", b"text", ("x:1",), "1"), Event("B", b"\xff", id="2"), Event("A", id="3")])
    lines = headwater("read", "orders", "--json", "--type", "A", "--type", "B").out
    assert [json.loads(line)["sequence_number"] for line in lines.splitlines()] == [1, 2, 3]
    assert headwater("append", "orders", "--events", "-", "--json", stdin=lines.encode()).out.count("true") == 1


def test_read_is_bounded_as_asked(headwater, log: RemoteLog) -> None:
    log.append([Event("A", tags=(f"x:{number % 2}",)) for number in range(6)])

    def numbers(*options: str) -> list[int]:
        return [int(line.split()[0]) for line in headwater("read", "orders", *options).out.splitlines()]

    assert numbers("--tag", "x:1", "--limit", "2") == [2, 4]
    assert numbers("--backwards", "--from", "3") == [3, 2, 1]
    assert numbers("--after", "4") == [5, 6]
    assert numbers("--query", "tag=x:0 or type=B", "--after", "1") == [3, 5]


def test_tail_shows_the_newest_in_order(headwater, log: RemoteLog) -> None:
    log.append([Event("A")] * 5)
    assert [line.split()[0] for line in headwater("tail", "orders", "-n", "2").out.splitlines()] == ["4", "5"]


def test_query_counts_types(headwater, log: RemoteLog) -> None:
    log.append([Event("A", tags=("x:1",)), Event("B", tags=("x:1",)), Event("A", tags=("x:1",)), Event("C")])
    shown = headwater("query", "orders", "tag=x:1").out
    assert shown.startswith("3 events match\n")
    assert [line.split() for line in shown.splitlines()[-2:]] == [["A", "2", "1", "3"], ["B", "1", "2", "2"]]
    counted = json.loads(headwater("query", "orders", "type=C or type=Z", "--json").out)
    assert counted == {"events": 1, "first": 4, "last": 4, "types": [{"type": "C", "events": 1, "first": 4, "last": 4}]}
    assert headwater("query", "orders", "type=Z").out == "0 events match\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["append", "orders"], USAGE, "use --type and the other options for one event, or --events FILE"),
        (
            ["append", "orders", "--type", "A", "--tag", ""],
            REFUSED,
            "events[0].tags[0]: a tag must have 1 to 1100 bytes",
        ),
        (["append", "orders", "--type", "A", "--attribute", "x"], USAGE, "--attribute: expected NAME=VALUE"),
        (["append", "orders", "--events", "-"], REFUSED, "an append needs at least one event"),
        (["read", "nowhere"], REFUSED, "there is no log 'nowhere'"),
        (
            ["read", "orders", "--query", "x", "--type", "A"],
            USAGE,
            "use --query, or --type, --tag and --exact-tag, not both",
        ),
        (["query", "orders", "order:17"], USAGE, "query: expected type=TYPE, tag=TAG, exact_tag=TAG, or, all"),
        (["read", "orders", "--url", "http://127.0.0.1:1", "--retry-s", "0"], UNREACHABLE, "no answer from"),
        (["read", "orders", "--url", "x"], USAGE, "url: expected http://HOST[:PORT] or https://HOST[:PORT]"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(headwater, log, arguments: list[str], code: int, message: str) -> None:
    done = headwater(*arguments)
    assert done.code == code
    assert message in done.err
    assert "Traceback" not in done.err


COMMANDS = ["append", "read", "tail", "query", "import", "export", "logs", "consumers", "bench"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(headwater, command: str) -> None:
    assert "Example" in headwater(command, "--help").out


def test_bench_measures(headwater, log: RemoteLog) -> None:
    rows = json.loads(headwater("bench", "orders", "--seconds", "0.1", "--clients", "2", "--json").out)
    assert [row["what"] for row in rows] == ["append", "decide", "read"]
    assert all(row["requests"] > 0 and row["p50_ms"] <= row["p99_ms"] for row in rows)


def test_odd_tags_go_in_and_are_found_by_every_option(headwater, log: RemoteLog) -> None:
    for tag in ODD_TAGS:
        assert headwater("append", "orders", "--type", "A", f"--tag={tag}").code == 0
    log.append([Event("B", tags=("order/17:1", "\u00e9:x"))])
    assert [event.tags for event in log.read(limit=len(ODD_TAGS))] == [(tag,) for tag in ODD_TAGS]

    def found(*arguments: str) -> set[str]:
        done = headwater("read", "orders", "--json", *arguments)
        assert done.code == 0, done.err
        return {tag for line in done.out.split("\n") if line for tag in json.loads(line)["event"]["tags"]}

    for tag in ODD_TAGS:
        assert found("--type", "A", f"--tag={tag}") == matching(tag)
        assert found(f"--exact-tag={tag}") == found("--query", shlex.quote(f"exact_tag={tag}")) == {tag}
    assert found("--tag=order/17") == {"order/17", "order/17:1", "\u00e9:x"}


def test_tags_are_shown_so_that_one_can_tell_where_they_end(headwater, log: RemoteLog) -> None:
    log.append([Event("A", tags=("order/17", "two words", "it's", "\u00dcn\u00ef:1"))])
    assert headwater("read", "orders").out.rstrip().endswith("  'it'\"'\"'s' order/17 'two words' \u00dcn\u00ef:1")
