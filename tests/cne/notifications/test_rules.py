"""Strict mode: the specification to the letter, with the JSON path of what breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.cne.notifications import reader, rules
from headwater.cne.notifications.notification import Dialect
from headwater.core.errors import InvalidEvent
from tests.every import every

from ..builders import EXAMPLE_REDFISH, bare, redfish, text, v1_value, v2_value, wrapped


def check(document: object, dialect: Dialect = Dialect.V1) -> None:
    rules.check(reader.members_of(text(document)), dialect)


def test_what_keeps_every_rule_passes():
    check(bare(v1_value(), v1_value(dataType="metric", valueType="decimal64.3", value=100.3)))
    check(bare(v1_value(valueType="redfish-event", value=redfish())))
    check(bare(v1_value(valueType="redfish-event", value=EXAMPLE_REDFISH)))
    check(wrapped(flag=True, number=-(2**31), other=2**31 - 1, text="1.5"), Dialect.V2)
    check(bare(v2_value()), Dialect.V2)
    check(wrapped(), Dialect.V2)
    check(bare(time=...))


def of_redfish(**more: Any) -> dict[str, Any]:
    return v1_value(valueType="redfish-event", value=redfish(**more))


CASES = {
    "id": bare(id=""),
    "type": bare(type=...),
    "source": bare(source=...),
    "dataContentType": bare(dataContentType=...),
    "time": bare(time="2023-10-05T12:34:54896244Z"),
    "data": bare(data=...),
    "data.version": bare(data={"values": [v1_value()]}),
    "data.version ": bare(data={"version": "v1.0", "values": [v1_value()]}),
    "data.values": bare(data={"version": "1.0", "values": []}),
    "data.values[0]": bare(5),
    "data.values[0].resource": bare(v2_value()),
    "data.values[1].dataType": bare(v1_value(), v1_value(dataType="alarm")),
    "data.values[0].valueType": bare(v1_value(valueType="metric", value="6")),
    "data.values[0].value": bare(v1_value(valueType="decimal64.3", value="0.1234")),
    "data.values[1].value": bare(v1_value(), v1_value(value=5)),
    "data.values[0].value.Events[0].MemberId": bare(of_redfish(Events=[{"MessageId": "TMP0100"}])),
    "data.values[0].value.Id": bare(of_redfish(Id="")),
    "data.values[0].value.Events": bare(of_redfish(Events=[])),
    "specversion": wrapped(v1_value(), specversion="v1.0"),
    "extension": wrapped(v1_value(), extension=2**31),
    "extension ": wrapped(v1_value(), extension=1.5),
    "extension  ": wrapped(v1_value(), extension=-(2**31) - 1),
    "extension   ": wrapped(v1_value(), extension=[1]),
}


@every("path", CASES)
def test_broken_rule_is_told_with_its_path(path):
    with pytest.raises(InvalidEvent) as refused:
        check(CASES[path])
    assert refused.value.where == path.strip()
