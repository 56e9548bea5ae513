"""Tags that a log takes and that something on the way might not carry: what producers and readers are tried with."""

from __future__ import annotations

ODD_TAGS: tuple[str, ...] = (
    # as other event stores have them
    "order/17", "tenant.id:5", "\u00dcn\u00efcode:1", "k" * 56, "user@example.org", "urn:uuid:15aaa216-4179-46d9",
    # colons where nobody expects them
    ":", "::", ":x", "x:", "a:b:c", "y::",
    # what lists, header fields, queries and shells take apart
    " ", " space", "space ", "two words", "a,b", "a, b", ",", "%", "100%", "%2C", "%20x", "%25", "'", '"', "\\", "\\n",
    "it's", '"quoted"', "=", "k=v", "tag=x", "or", "and", "all", "null", "{", '{"a":1}', "[1]", "-", "--tag", "#", "*",
    "$HOME", "`x`", "<&>", ";", "|", "?x=1", "_", "a%b_c", "\ufeffmark",
    # more than ASCII: composed and not, white space, joined, from right to left, at the end of Unicode
    "\u00e9", "e\u0301", "\u00a0x", "\u2028", "\u3000", "\U0001f680", "\U0001f469\u200d\U0001f467", "\u202ex",
    "\u0645\u0631\u062d\u0628\u0627", "\ufffd", "\uffff", "\U0010ffff",
    # as long as can be
    "x" * 1100, "\u00e9" * 550, "\U0001f680" * 275, f"{'k' * 50}:{chr(0x1f680) * 256}",
)  # fmt: skip


def matching(wanted: str, tags: tuple[str, ...] = ODD_TAGS) -> set[str]:
    """Those that a query for `wanted` finds: that tag, and all of that key where it is a key."""
    return {tag for tag in tags if tag == wanted or (":" not in wanted and tag.startswith(f"{wanted}:"))}
