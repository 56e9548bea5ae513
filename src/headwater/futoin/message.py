"""One FutoIn message as it came in: what every coder makes of its bytes (FTN3 1.9, 1.4 and 1.5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from .errors import invalid

if TYPE_CHECKING:
    from .coders import Coder

RID_CHARS_MAX = 64
_RID = re.compile(r"[CS][a-zA-Z0-9_-]*[0-9]", re.ASCII)


class Message:
    """A request, or the reply to one. Nothing but its envelope is decoded until somebody asks."""

    __slots__ = ("_parameters", "_tree", "coder", "error", "f", "is_reply", "rid", "sec", "size")

    def __init__(
        self,
        coder: Coder,
        size: int,
        *,
        f: object,
        rid: object,
        sec: object,
        error: object,
        is_reply: bool,
        parameters: Callable[[Container[str]], dict[str, Any]],
        tree: Callable[[], object],
    ) -> None:
        self.coder, self.size = coder, size
        self.f, self.sec = f, sec
        self.rid = rid if isinstance(rid, str) and len(rid) <= RID_CHARS_MAX and _RID.fullmatch(rid) else None
        """The request's identity on its connection, or None where there is none that could be repeated."""
        self.error = error
        """Of a reply: the name of the error, or None."""
        self.is_reply = is_reply
        self._parameters, self._tree = parameters, tree

    def function_name(self) -> str:
        """What `f` says. Raises FutoInError (InvalidRequest)."""
        if not isinstance(self.f, str) or not self.f:
            raise invalid("Missing req.f")
        return self.f

    def parameters(self, as_json: Container[str]) -> dict[str, Any]:
        """`p`, decoded; those named by `as_json` as the text of their JSON. Raises FutoInError (InvalidRequest)."""
        return self._parameters(as_json)

    def tree(self) -> object:
        """The whole message as plain values: what a signature is computed of. Raises FutoInError (InvalidRequest)."""
        return self._tree()
