"""What is taken and what is refused, line by line of the inconsistencies that are in the field."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cne.notifications import reader, writer
from headwater.cne.notifications.notification import Dialect, Notification, Opaque
from headwater.core.errors import InvalidInput
from tests.every import every

from ..builders import SYNC_STATE, bare, redfish, text, v1_value, v2_value, wrapped


def read(document: object, dialect: Dialect | None = None) -> Notification:
    raw = document if isinstance(document, bytes) else text(document)
    return reader.read(reader.members_of(raw), dialect)


def value_of(value: object) -> tuple[str, str, object]:
    (found,) = read(bare(value)).values
    content = json.loads(found.value.text) if isinstance(found.value, Opaque) else found.value
    return found.data_type, found.value_type, content


NOTE, METRIC = "notification", "metric"
TAKEN = {
    "keys of v1": (v1_value(), (NOTE, "enumeration", "LOCKED")),
    "keys of v2": (v2_value(), (NOTE, "enumeration", "LOCKED")),
    "type instead of dataType": (v1_value(dataType=None, type="notification"), (NOTE, "enumeration", "LOCKED")),
    "dataType missing": (v1_value(dataType=None), (NOTE, "enumeration", "LOCKED")),
    "dataType missing, of a decimal": (
        v1_value(dataType=None, valueType="decimal64.3", value="1"),
        (METRIC, "decimal64.3", "1"),
    ),
    "dataType unknown": (v1_value(dataType="alarm"), ("alarm", "enumeration", "LOCKED")),
    "decimal as text": (v1_value(valueType="decimal64.3", value="100.3"), (NOTE, "decimal64.3", "100.3")),
    "decimal as whole number": (v1_value(valueType="decimal64.3", value=6), (NOTE, "decimal64.3", "6")),
    "decimal of four fraction digits": (
        v1_value(valueType="decimal64.3", value="0.1234"),
        (NOTE, "decimal64.3", "0.1234"),
    ),
    "value_type metric of StarlingX": (v2_value(value_type="metric", value="6"), (NOTE, "metric", "6")),
    "value type missing, a string": (v2_value(value_type=None), (NOTE, "enumeration", "LOCKED")),
    "value type missing, a number": (v2_value(value_type=None, value=5), (NOTE, "decimal64.3", "5")),
    "value type unknown": (v2_value(value_type="decimal64", value="x"), (NOTE, "decimal64", "x")),
    "value type unknown, an object": (v2_value(value_type="vendor", value={"a": [1]}), (NOTE, "vendor", {"a": [1]})),
    "a Redfish event": (v1_value(valueType="redfish-event", value=redfish()), (NOTE, "redfish-event", redfish())),
    "a Redfish event without EventType": (
        v1_value(valueType="redfish-event", value=redfish(event_type=None)),
        (NOTE, "redfish-event", redfish(event_type=None)),
    ),
    "a Redfish event without Id": (
        v1_value(valueType="redfish-event", value={"Events": [], "Name": "Events"}),
        (NOTE, "redfish-event", {"Events": [], "Name": "Events"}),
    ),
    "an unknown member": (v1_value(vendor={"x": 1}), (NOTE, "enumeration", "LOCKED")),
}


@every("case", TAKEN)
def test_value_is_taken(case):
    given, expected = TAKEN[case]
    assert value_of(given) == expected


def test_decimal_keeps_its_text():
    document = text(bare(v1_value(valueType="decimal64.3", value="@"))).replace(b'"@"', b"100.300")
    assert read(document).values[0].value == "100.300"


def test_numbers_inside_a_redfish_event_keep_their_text():
    document = text(bare(v1_value(valueType="redfish-event", value={"r": "@"}))).replace(b'"@"', b"12.50e1")
    assert read(document).values[0].value == Opaque(b'{"r":12.50e1}')


def test_dialect_of_the_route_counts_where_a_value_speaks_both():
    both = {
        **v1_value(resource="/one", dataType="notification"),
        **v2_value(ResourceAddress="/two", data_type="metric"),
    }
    one, two = read(bare(both), Dialect.V1).values[0], read(bare(both)).values[0]
    assert (one.resource, one.data_type) == ("/one", "notification")
    assert (two.resource, two.data_type) == ("/two", "metric")


NESTED = json.loads('{"a":' * 40 + "1" + "}" * 40)
REFUSED_VALUES = {
    "null": (v1_value(value=None), ".value"),
    "enumeration as number": (v1_value(value=5), ".value"),
    "enumeration as boolean": (v1_value(value=True), ".value"),
    "enumeration as object": (v1_value(value={}), ".value"),
    "decimal NaN": (v1_value(valueType="decimal64.3", value="NaN"), ".value"),
    "decimal as boolean": (v1_value(valueType="decimal64.3", value=False), ".value"),
    "metric that is no number": (v2_value(value_type="metric", value="six"), ".value"),
    "Redfish event as string": (v1_value(valueType="redfish-event", value="{}"), ".value"),
    "value type that is no string": (v1_value(valueType=7), ".valueType"),
    "resource that is no string": (v2_value(ResourceAddress=7), ".ResourceAddress"),
    "no resource": (v2_value(ResourceAddress=None), ".ResourceAddress"),
    "an array": ([], ""),
    "a control character": (v1_value(value="LOCK\tED"), ".value"),
    "a noncharacter": (v1_value(value="LOCK\uffffED"), ".value"),
    "half a surrogate pair": (v1_value(value="LOCK\ud800ED"), ".value"),
    "half a surrogate pair in an object": (v1_value(valueType="redfish-event", value={"a": "\udead"}), ".value.a"),
    "a number beyond a double": (v1_value(valueType="redfish-event", value={"a": 10**400}), ".value"),
    "an object nested too deeply": (v1_value(valueType="redfish-event", value=NESTED), ".value" + ".a" * 32),
}


@every("case", REFUSED_VALUES)
def test_value_is_refused_with_its_path(case):
    value, path = REFUSED_VALUES[case]
    with pytest.raises(InvalidInput) as refused:
        read(bare(v1_value(), value))
    assert refused.value.where == f"data.values[1]{path}"


def test_missing_content_type_is_json_in_whatever_case_it_is_named():
    assert read(bare(dataContentType=...)).data_content_type == "application/json"
    assert read(bare(dataContentType=..., datacontenttype="text/x")).data_content_type == "text/x"


def test_source_may_be_missing_in_a_bare_event_only():
    assert read(bare(source=...)).source == ""
    with pytest.raises(InvalidInput, match="source"):
        read(wrapped(source=...))


@pytest.mark.parametrize("time", [..., "", None])
def test_missing_time_is_left_to_be_stamped(time):
    assert read(bare(time=time)).time == ""


@pytest.mark.parametrize(
    ("version", "expected"),
    [("v1.0", "v1.0"), ("v1", "v1"), ("1", "1"), ("2.0", "2.0"), ("", "1.0"), (None, "1.0"), (1.0, "1.0")],
)
def test_version_is_free_text(version, expected):
    document = bare()
    document["data"]["version"] = version
    notification = read(document)
    assert notification.version == expected
    assert json.loads(writer.bare(notification, "s"))["data"]["version"] == expected
    assert json.loads(writer.structured(notification))["data"]["version"] == "1.0"


@pytest.mark.parametrize("values", [[], None, ...])
def test_no_values_are_taken(values):
    data = {"version": "1.0", "values": values}
    assert read(bare(data={name: value for name, value in data.items() if value is not ...})).values == ()


@pytest.mark.parametrize("data", [..., None, 5, [], "no JSON", '"text"', "[1]"])
def test_missing_or_strange_data_is_refused(data):
    with pytest.raises(InvalidInput, match="data"):
        read(bare(data=data))


def test_data_as_json_text_is_understood_once():
    assert read(bare(data=json.dumps(bare()["data"]))).values == read(bare()).values
    with pytest.raises(InvalidInput, match="data"):
        read(bare(data=json.dumps(json.dumps(bare()["data"]))))


def test_whole_bare_event_inside_a_cloudevent_is_understood():
    assert read(wrapped(data=bare())).values == read(bare()).values


def test_data_as_base64_is_understood():
    document = wrapped(data=..., data_base64=base64.b64encode(text(wrapped()["data"])).decode())
    assert read(document).values == read(wrapped()).values
    with pytest.raises(InvalidInput, match="data_base64"):
        read(wrapped(data=..., data_base64="?"))


@pytest.mark.parametrize("version", ["1.0", "v1.0", "0.3", 1])
def test_versions_of_cloudevents_that_are_taken(version):
    assert read(wrapped(specversion=version)).is_wrapped


@pytest.mark.parametrize("version", ["2.0", 2, None, "", [], "1.1"])
def test_versions_of_cloudevents_that_are_refused(version):
    with pytest.raises(InvalidInput, match="specversion"):
        read(wrapped(specversion=version))


def test_source_of_cloudevents_03_is_the_address_where_it_has_a_subject():
    found = read(wrapped(specversion="0.3", source="/bus/address", subject="/cluster/node/ptp"))
    assert (found.source, found.address, dict(found.extensions)) == ("/cluster/node/ptp", "/bus/address", {})
    assert read(wrapped(subject="topic")).extensions == {"subject": "topic"}


def test_extensions_are_kept_with_their_types():
    document = wrapped(traceparent="00-1-2-01", count=7, flag=True, Strange=1, nothing=None, vendor={}, sequence="9")
    assert read(document).extensions == {"traceparent": "00-1-2-01", "count": 7, "flag": True}


@pytest.mark.parametrize("name", ["id", "type"])
@pytest.mark.parametrize("given", [..., "", None, 5, [], "a\x00b"])
def test_required_attributes(name, given):
    with pytest.raises(InvalidInput) as refused:
        read(bare(**{name: given}))
    assert refused.value.where == name


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"\xff", "not UTF-8"),
        (b"[]", "array"),
        (b"5", "object"),
        (b'{"id": "a", "id": "b"}', "'id' occurs twice"),
        (b'{"id": NaN}', "NaN"),
        (b"[" * 15_000, "nested too deeply"),
        (b'{"a":' * 15_000, "nested too deeply"),
    ],
)
def test_what_is_no_object_is_refused(raw, problem):
    with pytest.raises(InvalidInput, match=problem):
        read(raw)


def test_example_of_the_specification_with_a_number_for_a_decimal_is_taken():
    values = read(bare(v1_value(), v1_value(dataType="metric", valueType="decimal64.3", value=100.3))).values
    assert [value.value for value in values] == ["LOCKED", "100.3"]


def test_example_of_the_specification_with_v_in_specversion_is_taken():
    found = read(
        wrapped(v1_value(type="notification", dataType=None), specversion="v1.0", datacontenttype="application/json")
    )
    assert (found.values[0].data_type, found.values[0].resource) == ("notification", SYNC_STATE)


def test_binary_mode_is_read_from_header_fields():
    headers = [
        (b"ce-specversion", b"1.0"),
        (b"ce-id", b"b1"),
        (b"ce-source", b"/na%C3%AFve"),
        (b"ce-type", b"event.x"),
        (b"ce-traceparent", b"00"),
        (b"content-type", b"application/json"),
    ]
    found = reader.read(reader.members_of_headers(headers, text(wrapped()["data"])))
    assert (found.id, found.source, found.extensions, len(found.values)) == ("b1", "/naïve", {"traceparent": "00"}, 1)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["id", "type", "source", "time", "data", "values", "value", "specversion", "resource",
                         "ResourceAddress", "dataType", "data_type", "valueType", "value_type", "version", "x"]),
        inner, max_size=8),
    max_leaves=30,
)  # fmt: skip


@given(_json, st.sampled_from([None, *Dialect]))
def test_any_json_is_a_notification_or_a_refusal(document, dialect):
    try:
        found = read(json.dumps(document).encode(), dialect)
    except InvalidInput:
        return
    json.loads(writer.structured(found, 1))
    json.loads(writer.bare(found, "s"))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_notification_or_a_refusal(raw):
    with pytest.raises(InvalidInput):
        read(raw)


@given(
    st.sampled_from(Dialect), st.sampled_from(["LOCKED", "100.300", "ü"]), st.sampled_from(["enumeration", "vendor"])
)
def test_what_is_written_is_read_back(dialect, value, value_type):
    original = read(bare(v2_value(value=value, value_type=value_type)))
    again = read(writer.bare(original, original.id) if dialect is Dialect.V1 else writer.structured(original))
    assert (again.values, again.type, again.source, again.time) == (
        original.values, original.type, original.source, original.time,
    )  # fmt: skip
