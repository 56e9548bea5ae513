"""Property filters (FILTEX 4): maps of fields and what they are to be; and the event streams annotations filter.

A reference that is null matches anything. Any other matches an equal value: numbers whatever their width, text
whether symbol or string. What is absent is null, or has its default (header). Text that begins with `&p:` or `&s:` is
a prefix or a suffix, `&&` stands for one `&`. There is no third value: what does not match, is false.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.limits import show
from .comparisons import comparison
from .context import Context
from .fields import DELIVERY_ANNOTATIONS, OFFSET, TIMESTAMP, WELL_KNOWN, well_known
from .like import Pattern
from .syntax import And, Constant, IsTrue, Like, Node
from .values import Kind, kind_of

_REFERENCE_CHARS_MAX = 4096


def property_filter(section: str, given: object, context: Context) -> Node:
    """The predicate that every field of the map matches in that section. Raises InvalidFilter."""
    fields = []
    for key, reference in _entries(given, context).items():
        name = well_known(section, key)
        if name is None:
            known = ", ".join(sorted(WELL_KNOWN[section]))
            raise context.fault(f"{section} has no field {show(key)}; it has {known}")
        fields.append(_matches(section, name, reference, context))
    return And(tuple(fields))


def delivery_annotations_filter(given: object, context: Context) -> Node:
    """The event streams filter (5.2.1): every annotation of the map is greater than its reference."""
    fields = []
    for key, reference in _entries(given, context).items():
        if key == OFFSET:
            if not isinstance(reference, str):
                raise context.fault(f"{OFFSET} is a symbol, {show(reference)} given")
        elif key == TIMESTAMP:
            if not isinstance(reference, int) or isinstance(reference, bool):
                raise context.fault(f"{TIMESTAMP} is a timestamp (ms), {show(reference)} given")
        else:
            raise context.fault(f"{OFFSET} and {TIMESTAMP} are allowed, {show(key)} given")
        field = context.field(DELIVERY_ANNOTATIONS, key)
        fields.append(comparison(">", field, Constant(reference), context.latest))
    return And(tuple(fields))


def _entries(given: object, context: Context) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise context.fault(f"a map is expected, {show(given)} given")
    if len(given) > context.limits.list_items_max:
        raise context.fault(f"{len(given)} fields given, at most {context.limits.list_items_max} are allowed")
    context.spend(len(given))
    for key in given:
        if not isinstance(key, str):
            raise context.fault(f"a field is named by a symbol or a string, {show(key)} given")
    return given


def _matches(section: str, name: str, reference: object, context: Context) -> Node:
    field = context.field(section, name)
    if reference is None:
        return Constant(True)
    if isinstance(reference, str):
        if len(reference) > _REFERENCE_CHARS_MAX:
            problem = f"{len(reference)} characters given, at most {_REFERENCE_CHARS_MAX} are allowed"
            raise context.fault(f"{name}: {problem}")
        marker, rest = reference[:3], reference[3:]
        if marker == "&p:":
            return IsTrue(Like(field, Pattern.prefix(rest)))
        if marker == "&s:":
            return IsTrue(Like(field, Pattern.suffix(rest)))
        if reference.startswith("&&"):
            reference = reference[1:]
        elif reference.startswith("&"):
            raise context.fault(f"{name}: &p:, &s: and && are allowed, {show(reference)} given")
    elif kind_of(reference) is Kind.OTHER:
        raise context.fault(f"{name}: a simple value is expected, {show(reference)} given")
    return IsTrue(comparison("=", field, Constant(reference), context.latest))
