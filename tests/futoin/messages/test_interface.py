"""Interface definitions: every function has its implementation, every error of the core its reply."""

from __future__ import annotations

import pytest

from headwater.core import access, errors
from headwater.futoin import errors as wire
from headwater.futoin.functions.push import Pushing
from headwater.futoin.messages import interface
from headwater.futoin.messages.types import TypeTable
from headwater.futoin.server import handlers


def test_every_function_that_may_be_called_has_an_implementation_and_no_other() -> None:
    functions = {function.key for function in interface._functions().values()}
    assert functions == handlers(Pushing()).keys()


def test_push_inherits_poll_1_0_and_with_it_its_sizes() -> None:
    assert interface.find("futoin.evt.push:1.1:pollEvents").reply_bytes_max == 64 * 1024
    assert interface.find("futoin.evt.poll:1.0:pollEvents").reply_bytes_max == 64 * 1024
    assert interface.find("futoin.evt.poll:1.1:pollEvents").reply_bytes_max == 8 * 2**20
    assert interface.find("futoin.evt.poll:1.1:pollEvents").request_bytes_max == 64 * 1024
    assert "BiDirectChannel" in interface.find("futoin.evt.push:1.1:pollEvents").requires


@pytest.mark.parametrize("tree", [errors, access])
def test_every_error_of_the_core_has_a_reply_that_clients_know(tree: object) -> None:
    standard = {"UnknownInterface", "NotImplemented", "NotSupportedVersion", "Unauthorized", "InternalError"}
    standard |= {"InvalidRequest", "DefenseRejected", "PleaseReauth", "SecurityError"}
    thrown = {name for function in interface._functions().values() for name in function.throws}
    for kind in vars(tree).values():
        if isinstance(kind, type) and issubclass(kind, errors.EventLogError):
            assert any(parent in wire._TABLE for parent in kind.__mro__)
    assert {row.name for row in wire._TABLE.values()} <= standard | thrown


def test_types_are_checked_as_the_definitions_say() -> None:
    table = TypeTable(
        {
            "Small": {"type": "integer", "min": 0, "max": 9},
            "Name": {"type": "string", "regex": "^[a-z]+$", "minlen": 2, "maxlen": 4},
            "Also": "Name",
            "Row": {"type": "map", "fields": {"n": "Small", "s": {"type": "Name", "optional": True}}},
            "Rows": {"type": "array", "elemtype": "Row", "minlen": 1},
        }
    )
    fits = [
        ("Small", 0), ("Small", 9), ("Small", 3.0), ("Also", "ab"), ("Row", {"n": 1}), ("Row", {"n": 1, "s": None}),
        ("Rows", [{"n": 1, "s": "abc"}]), ("number", 1.5), ("boolean", False), ("any", None), ("map", {}),
    ]  # fmt: skip
    misfits = [
        ("Small", -1), ("Small", 10), ("Small", 1.5), ("Small", True), ("Small", "1"), ("Also", "a"), ("Also", "abcde"),
        ("Also", "ab\n"), ("Row", {}), ("Row", {"n": 1, "x": 1}), ("Row", []), ("Rows", []), ("Rows", [{"n": 10}]),
        ("number", True), ("boolean", 1), ("string", None), ("array", ()),
    ]  # fmt: skip
    assert [case for case in fits if not table.check(case[0])(case[1])] == []
    assert [case for case in misfits if table.check(case[0])(case[1])] == []
    assert table.standard_type("Also") == "string"
