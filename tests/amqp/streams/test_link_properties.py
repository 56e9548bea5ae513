"""Link properties of event streams: what is asked for, and what is answered."""

from __future__ import annotations

import pytest

from headwater.amqp.protocol.conditions import LinkFault
from headwater.amqp.protocol.types import Int, Long, Symbol, UInt, ULong
from headwater.amqp.streams.link_properties import Binding, binding_of, bound_properties, partition_number


def asked(**given: object) -> Binding:
    return binding_of({Symbol(f"event-streams-{name.replace('_', '-')}"): value for name, value in given.items()})


def test_attach_without_properties_asks_for_nothing():
    assert binding_of(None) == binding_of({}) == binding_of({Symbol("product"): "x"}) == Binding(None, None, None)


def test_symbols_and_strings_are_taken_alike():
    assert asked(partition=Symbol("1"), consumer_group="g") == asked(partition="1", consumer_group=Symbol("g"))


@pytest.mark.parametrize("epoch", [ULong(5), Long(5), Int(5), UInt(5), 5])
def test_epoch_may_be_any_integer(epoch):
    binding = asked(consumer_group="g", epoch=epoch)
    assert binding == Binding(None, "g", 5)
    assert type(binding.epoch) is int


@pytest.mark.parametrize(("given", "said"), [
    ({"partition": 1}, "event-streams-partition"), ({"consumer_group": 1}, "event-streams-consumer-group"),
    ({"consumer_group": ""}, "1 to 256"), ({"consumer_group": "a\nb"}, "printable"),
    ({"consumer_group": "x" * 257}, "1 to 256"), ({"consumer_group": "g", "epoch": -1}, "non-negative"),
    ({"consumer_group": "g", "epoch": True}, "got True"), ({"consumer_group": "g", "epoch": "1"}, "got '1'"),
    ({"epoch": 1}, "also set event-streams-consumer-group"),
])  # fmt: skip
def test_unfit_properties_are_refused(given, said):
    with pytest.raises(LinkFault, match=said) as caught:
        asked(**given)
    assert caught.value.condition == "amqp:invalid-field"


def test_answer_says_what_the_link_is_bound_to():
    found = bound_properties(3, "g", 7)
    assert found == {
        "event-streams-partition": "3", "event-streams-consumer-group": "g", "event-streams-epoch": 7,
    }  # fmt: skip
    assert [type(value) for value in found.values()] == [Symbol, str, ULong]
    assert {type(key) for key in found} == {Symbol}
    assert bound_properties(None) == {}
    assert bound_properties(0) == {"event-streams-partition": "0"}


@pytest.mark.parametrize(("name", "number"), [
    ("0", 0), ("3", 3), ("4", None), ("03", None), ("", None), ("-1", None), ("٣", None), ("3 ", None), ("x", None),
    ("99999999999", None),
])  # fmt: skip
def test_partition_is_found_by_the_very_name_that_it_has(name, number):
    assert partition_number(name, 4) == number
