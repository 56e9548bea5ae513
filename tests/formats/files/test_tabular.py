import json

import pytest

from headwater.core.errors import InvalidInput
from headwater.formats.files.tabular import TableMapping, table_events

ORDERS = """\
id,activity,timestamp,order,customer
e1,placed,2024-01-01T10:00:00Z,17,ann
e2,"paid, in full",2024-01-01T11:00:00Z,17,NA
"""


def events_of(text: str, **columns: object) -> list:
    return list(table_events(text.splitlines(keepends=True), TableMapping("orders.csv", **columns)))  # type: ignore[arg-type]


def test_a_row_becomes_an_event() -> None:
    first, second = events_of(ORDERS, id_column="id", tags=(("order", "order"), ("customer", "customer")))
    assert (first.id, first.type, first.source) == ("e1", "placed", "orders.csv")
    assert first.tags == ("customer:ann", "order:17")
    assert first.attributes["time"] == "2024-01-01T10:00:00Z"
    assert json.loads(first.data)["customer"] == "ann"
    assert (second.type, second.tags) == ("paid, in full", ("order:17",))


def test_ids_are_the_same_each_time_and_after_the_file_has_grown() -> None:
    ids = [event.id for event in events_of(ORDERS)]
    grown = [event.id for event in events_of(ORDERS + "e3,sent,2024-01-02T10:00:00Z,17,ann\n")]
    assert grown[:2] == ids
    assert len(set(grown)) == 3


def test_equal_rows_are_different_events() -> None:
    one, other = events_of("type\nA\nA\n")
    assert one.id != other.id


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_guessed_from_the_first_line(delimiter: str) -> None:
    (event,) = events_of(f"type{delimiter}x\nA{delimiter}1\n")
    assert json.loads(event.data) == {"type": "A", "x": "1"}


def test_a_quoted_cell_may_hold_a_line_break() -> None:
    (event,) = events_of('type,note\nA,"one\ntwo"\n')
    assert json.loads(event.data)["note"] == "one\ntwo"


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", {}, "line 1: expected the column names in the first line"),
        ("a,b\n1,2\n", {}, r"line 1: no event type column found among \['a', 'b'\]; name one"),
        ("type,b\n1,2\n", {"id_column": "x"}, "line 1: there is no column 'x'; the columns are type, b"),
        ("type,b\nA,2\nA\n", {}, "line 3: expected 2 cells, got 1"),
        ("type,b\n,2\n", {}, "line 2: the event type column 'type' is empty"),
        ("type,id\nA,\n", {"id_column": "id"}, "line 2: the id column 'id' is empty"),
        ("type,time\nA,soon\n", {}, "line 2: expected a time as ISO 8601.*got 'soon'"),
        ('type,b\nA,"x\n', {}, "line 2: unexpected end of data"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, columns: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        events_of(text, **columns)
