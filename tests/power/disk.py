"""A disk that is told, record by record, what was done to it, and can say what it may hold if the power fails now.

Two kinds of file systems are modelled. Both promise what `fsync` and `fdatasync` promise of a file's bytes and size.

- *strict* promises what POSIX does, and no more: a name is durable when its directory was synced. Of what was done to
  names since then, any part may be there, and no part of it because of another; but a rename is whole or not at all.
- *ordered* is ext4, XFS, btrfs: names and sizes go through one journal, in order. A sync of a file or a directory
  commits the journal up to the newest entry that concerns it; of later entries, a first part may be there.

Neither orders the bytes of a file that were written after its last sync, one with another or with names: each sector
(512 bytes) or page (4,096) is as it was at some moment since then, whatever the others are. What a size covers and
nothing was written to reads as zeros.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from random import Random

from .leaving import Fate, Remains
from .nodes import Change, Naming, Node
from .recording import Operation, Record


class Kind(Enum):
    """What a file system promises of names; see the module."""

    STRICT = "strict"
    ORDERED = "ordered"


class Unmodelled(Exception):
    """The record has something that this disk cannot tell the fate of."""


class PowerDisk:
    """See the module."""

    def __init__(
        self, root: Path, root_inode: int, kind: Kind, is_ignored: Callable[[Record], bool] = lambda _: False
    ) -> None:
        """`is_ignored`: syncs that this disk only pretends to do."""
        self._root_path, self._kind, self._is_ignored = str(root), kind, is_ignored
        self._root = Node(-1, is_directory=True)
        self._nodes: dict[int, Node] = {root_inode: self._root}
        self._namings: list[Naming] = []
        """Those that are not durable."""
        self._committed = -1
        """Of an ordered disk: everything in the journal up to that number is durable."""
        self._number = -1

    @staticmethod
    def of(root: Path, kind: Kind) -> PowerDisk:
        """A disk on which everything that is there is durable."""
        disk = PowerDisk(root, root.stat().st_ino, kind)
        disk._take_in(disk._root, root)
        return disk

    def tell(self, record: Record) -> None:
        """The next thing that was done. Raises Unmodelled."""
        self._number = record.number
        match record.operation:
            case Operation.CREATE | Operation.MKDIR:
                node = Node(record.number, is_directory=record.operation is Operation.MKDIR)
                self._nodes[record.file] = node
                self._name(record.number, record.path, node)
            case Operation.REMOVE:
                self._name(record.number, record.path, None)
            case Operation.RENAME:
                self._rename(record)
            case Operation.LINK:
                self._name(record.number, record.other, self._found(record.path))
            case Operation.WRITE | Operation.TRUNCATE | Operation.ALLOCATE | Operation.ZERO:
                self._change(record)
            case Operation.SYNC | Operation.DATASYNC:
                if not self._is_ignored(record):
                    self._sync(record)
            case Operation.WRITESYNC:
                if not self._is_ignored(record) and not self._nodes[record.file].written_durably(record):
                    raise Unmodelled(f"what was written before is not durable, and in its way: {record}")
            case Operation.UNKNOWN:
                raise Unmodelled(str(record))

    def lose_power(self, target: Path, chance: Random) -> str:
        """Write down below `target` what may be left; answers in a few words what was chosen."""
        fate = chance.choices(list(Fate), (3, 1, 3, 3, 3))[0]
        names = chance.choices([Fate.GONE, Fate.KEPT, Fate.FIRST], (2, 1, 3))[0] if fate is not Fate.KEPT else fate
        return self._write_down(target, chance, fate, names)

    def keep_all(self, target: Path) -> None:
        """Write down below `target` what is there while the power is on."""
        self._write_down(target, Random(0), Fate.KEPT, Fate.KEPT)

    def _take_in(self, directory: Node, path: Path) -> None:
        for each in path.iterdir():
            inode = each.stat().st_ino
            node = self._nodes.setdefault(inode, Node(-1, is_directory=each.is_dir()))
            directory.names[each.name] = directory.names_now[each.name] = node
            if node.is_directory:
                self._take_in(node, each)
            else:
                node.content = bytearray(each.read_bytes())

    # What is done

    def _found(self, path: str) -> Node:
        node = self._root
        for name in path.removeprefix(self._root_path).split("/"):
            if name:
                node = node.names_now[name]
        return node

    def _name(self, number: int, path: str, node: Node | None) -> None:
        parent, _, name = path.rpartition("/")
        directory = self._found(parent)
        self._enter(Naming(number, directory, [(name, node)]), node or directory.names_now[name])

    def _rename(self, record: Record) -> None:
        (old_parent, _, old), (parent, _, new) = record.path.rpartition("/"), record.other.rpartition("/")
        if old_parent != parent:
            raise Unmodelled(f"a rename from one directory to another: {record}")
        directory = self._found(parent)
        node = directory.names_now[old]
        self._enter(Naming(record.number, directory, [(old, None), (new, node)]), node)

    def _enter(self, naming: Naming, node: Node) -> None:
        naming.apply(naming.directory.names_now)
        self._namings.append(naming)
        for each in (naming.directory, node):
            each.concerned.append(naming.number)
            each.concerned_data.append(naming.number)

    def _change(self, record: Record) -> None:
        node = self._nodes[record.file]
        change = Change(record.number, record.operation, record.at, record.size, record.data)
        node.changes.append(change)
        node.concerned.append(record.number)
        if change.is_resize:
            node.concerned_data.append(record.number)

    def _sync(self, record: Record) -> None:
        node, before = self._nodes[record.file], record.at
        node.durable_now(before)
        if self._kind is Kind.ORDERED:
            concerned = node.concerned if record.operation is Operation.SYNC else node.concerned_data
            if at := bisect_left(concerned, before):
                self._committed = max(self._committed, concerned[at - 1])
            self._make_durable(lambda naming: naming.number <= self._committed)
        elif node.is_directory:
            self._make_durable(lambda naming: naming.directory is node and naming.number < before)

    def _make_durable(self, is_durable: Callable[[Naming], bool]) -> None:
        left = []
        for naming in self._namings:
            if is_durable(naming):
                naming.apply(naming.directory.names)
            else:
                left.append(naming)
        self._namings = left

    # What is left

    def _write_down(self, target: Path, chance: Random, fate: Fate, names: Fate) -> str:
        if self._kind is Kind.ORDERED:
            upto = {Fate.GONE: self._committed, Fate.KEPT: self._number}.get(names)
            upto = chance.randint(self._committed, self._number) if upto is None else upto
            kept = [naming for naming in self._namings if naming.number <= upto]
        else:
            upto = None
            kept = self._some(chance, names)
        tree: dict[Node, dict[str, Node]] = {}
        for naming in kept:
            naming.apply(tree.setdefault(naming.directory, dict(naming.directory.names)))
        Remains(tree, chance, fate, self._committed, upto).write(self._root, target)
        return f"{self._kind.value}, bytes {fate.value}, names {names.value} ({len(kept)} of {len(self._namings)} kept)"

    def _some(self, chance: Random, names: Fate) -> Iterable[Naming]:
        if names in (Fate.GONE, Fate.KEPT):
            return self._namings if names is Fate.KEPT else []
        likely = chance.random()
        return [naming for naming in self._namings if chance.random() < likely]
