"""Source filters of the event stream node, which receivers set when they attach.

Supported are the filters of Event Stream Extensions (CSD01, 5.2), the SQL filter, the property filters and the groups
of AMQP Filter Expressions (FILTEX), message selectors (apache.org:selector-filter), and DCB queries.
`docs/conformance/amqp-filters.md` lists the supported parts of each.
"""

from .comparisons import EARLIEST, LATEST
from .context import DEFAULT_LIMITS, FilterLimits, InvalidFilter
from .entries import FILTERS, QUERY_FILTER
from .fields import Fields, format_offset, parse_offset
from .source import SourceFilter, source_filter

__all__ = [
    "DEFAULT_LIMITS",
    "EARLIEST",
    "FILTERS",
    "LATEST",
    "QUERY_FILTER",
    "Fields",
    "FilterLimits",
    "InvalidFilter",
    "SourceFilter",
    "format_offset",
    "parse_offset",
    "source_filter",
]
