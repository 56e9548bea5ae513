"""What is delivered is read by the CNCF's own package, in both modes; and what it writes is taken."""

from __future__ import annotations

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from .builders import NODE_SYNC_STATE, v2_value, wrapped
from .world import V2, World


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_package_reads_what_is_delivered(play, mode):
    async def scenario(world: World) -> None:
        await world.ask("POST", f"{V2}/create/event", wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE)))
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE, DeliveryMode=mode)
        call = subscriber.calls[-1]
        headers = dict(call.headers)
        if mode == "structured":  # the field's content type says nothing of CloudEvents
            headers["content-type"] = "application/cloudevents+json"
        event = from_http(HTTPMessage(headers, call.body), JSONFormat(), CloudEvent)
        assert (event.get_specversion(), event.get_source()) == ("1.0", "/cluster/node/worker-0/ptp")
        assert event.get_extension("sequence") == "000000000000000001"
        assert event.get_data()["values"][0]["value"] == "LOCKED"

    play(scenario)


@pytest.mark.parametrize("write", [to_structured, to_binary])
def test_what_the_package_writes_is_taken(play, write):
    async def scenario(world: World) -> None:
        attributes = {"id": "p-1", "source": "/naïve", "type": "event.sync", "specversion": "1.0",
                      "datacontenttype": "application/json"}  # fmt: skip
        data = {"version": "1.0", "values": [v2_value(ResourceAddress=NODE_SYNC_STATE)]}
        message = write(CloudEvent(attributes, data), JSONFormat())
        answer = await world.ask("POST", f"{V2}/create/event", message.body, headers=message.headers)
        assert answer.status == 202, answer.body
        state = (await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")).json
        assert (state["id"], state["source"]) == ("p-1", "/naïve")

    play(scenario)
