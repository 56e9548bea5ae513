"""All ids of a log: tables in memory for the newest ids (`ids`), mapped files for older ones (`id_files`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from . import ids
from .id_files import IdFile
from .ids import Generation, IdHashes, has_any_of_few


class IdTable:
    """All ids of a log: files for older ones, generations for newer ones.

    The log's committer changes it; maintenance replaces parts by files with the same ids, and drops the oldest.
    """

    def __init__(self) -> None:
        self.files: tuple[IdFile, ...] = ()
        """Sorted by first number."""
        self.generations: tuple[Generation, ...] = ()
        """Oldest first; ids are entered into the last one."""
        self._replacing = threading.Lock()
        """Guards the replacement of the two, never their use."""

    @property
    def last(self) -> int:
        """The highest known number; 0 if there is none."""
        if self.generations:
            return self.generations[-1].last
        return self.files[-1].last if self.files else 0

    def has_any(self, wanted: IdHashes) -> bool:
        """Whether any of these hashes is known (most appends need no further check)."""
        generations = self.generations  # before the files: ids moved meanwhile are then in both, never in neither
        files = self.files
        if len(wanted) < ids.VECTOR_MIN and isinstance(wanted, list):
            found = has_any_of_few(generations, wanted)
            for file in files:
                found = found or file.has_any_of_few(wanted)
            return found
        hashes = np.asarray(wanted, np.uint64)
        parts: tuple[Generation | IdFile, ...] = (*generations, *files)
        return any(part.has_any(hashes) for part in parts)

    def candidates(self, wanted: int) -> Iterator[int]:
        """The numbers with that hash, the newest part first. A number may occur twice."""
        generations, files = self.generations, self.files
        parts: tuple[Generation | IdFile, ...] = (*reversed(generations), *reversed(files))
        for part in parts:
            yield from part.candidates(wanted)

    def find(self, wanted: IdHashes, low: int, high: int) -> list[tuple[int, int]]:
        """Candidates from `low` to `high`: (index into `wanted`, number), by number. Safe to call from any thread."""
        hashes = np.asarray(wanted, np.uint64)
        pairs: set[tuple[int, int]] = set()
        generations, files = self.generations, self.files
        parts: tuple[Generation | IdFile, ...] = (*generations, *files)
        for part in parts:
            for indexes, numbers in part.find(hashes):
                fitting = (numbers >= low) & (numbers <= high)
                pairs.update(zip(indexes[fitting].tolist(), numbers[fitting].tolist(), strict=True))
        return sorted(pairs, key=lambda pair: pair[1])

    def insert(self, hashes: IdHashes, first: int) -> None:
        """Enter hashes for the numbers from `first` on."""
        start = 0
        while start < len(hashes):
            generation = self._newest_for(first + start)
            part = hashes[start : start + generation.room]
            generation.insert(part, first + start)
            start += len(part)

    def rollback(self, above: int) -> None:
        """Forget the numbers above that one: they did not become durable, so no file has them.

        An emptied generation is removed: repeated rollbacks must not fill one generation after another.
        """
        with self._replacing:
            self.generations = tuple(each for each in self.generations if each.first <= above)
        for generation in self.generations:
            if generation.last > above:
                generation.rollback(above)

    def drop(self, below: int) -> None:
        """Drop the parts whose numbers are all below that one; the newest generation stays."""
        with self._replacing:
            self.files = tuple(file for file in self.files if file.last >= below)
            kept = tuple(each for each in self.generations[:-1] if each.last >= below)
            self.generations = (*kept, *self.generations[-1:])

    def replace(self, new: IdFile) -> None:
        """Use a file; drop the files and generations that it covers, except the newest generation."""
        with self._replacing:
            kept = [file for file in self.files if not new.first <= file.first <= file.last <= new.last]
            self.files = tuple(sorted([*kept, new], key=lambda file: file.first))
            older = tuple(
                each for each in self.generations[:-1] if not new.first <= each.first <= each.last <= new.last
            )
            self.generations = (*older, *self.generations[-1:])

    def _newest_for(self, number: int) -> Generation:
        newest = self.generations[-1] if self.generations else None
        if newest is not None and number - newest.first <= ids.OFFSET_MAX - 2**20:
            if newest.room <= 0 and newest.slots < ids.SLOTS_MAX:
                newest.grow()
            if newest.room > 0:
                return newest
        return self.append(Generation(number, ids.SLOTS_MIN if newest is None and not self.files else ids.SLOTS_MAX))

    def append(self, generation: Generation) -> Generation:
        """Add a new generation (or one from a file)."""
        with self._replacing:
            self.generations = (*self.generations, generation)
        return generation
