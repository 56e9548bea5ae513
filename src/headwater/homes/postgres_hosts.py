"""The hosts that the address of a home names: the one that answered last comes first when the next connection is made.

An address may name several, as libpq has it: `postgresql://a,b:5433/x`. They are tried in order, so a first one that is
dead would cost its whole time at each connection.
"""

from __future__ import annotations

from collections.abc import Mapping

_LISTS = ("host", "hostaddr", "port")


class Hosts:
    """Those of one address. Safe to call from any thread."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """`given`: the parameters of the address, as libpq reads them."""
        lists = {name: given[name].split(",") for name in _LISTS if given.get(name)}
        size = max(map(len, lists.values()), default=0)
        if len(ports := lists.get("port", [])) == 1:
            lists["port"] = ports * size
        self._lists = lists
        self._is_known = size > 1 and "host" in lists and all(len(each) == size for each in lists.values())
        """Whether the lists are understood; if not, they are left to libpq."""
        self._first = 0

    def ordered(self) -> dict[str, str]:
        """The parameters that name the hosts, the one that answered last first; none if there is one host."""
        first = self._first
        if not self._is_known:
            return {}
        return {name: ",".join(each[first:] + each[:first]) for name, each in self._lists.items()}

    def answered(self, host: str, port: int) -> None:
        """That one took a connection."""
        if not self._is_known:
            return
        ports = self._lists.get("port", [""] * len(self._lists["host"]))
        for index, (name, listed) in enumerate(zip(self._lists["host"], ports, strict=True)):
            if name == host and listed in ("", str(port)):
                self._first = index
                return
