"""The copy that a server of the model has: frames of all logs, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable

from .model_home import STATE, Frame


class Copy:
    """Frames in order, and what judging needs of them: ids, keys, marks, positions, floors."""

    def __init__(self, incarnation: int, seen: Callable[[int, Frame], None]) -> None:
        self.incarnation = incarnation
        self._seen = seen
        self.frames: dict[str, list[Frame]] = {STATE: [], "a": [], "b": []}
        self.ends: dict[str, tuple[int, int]] = {STATE: (0, 0), "a": (0, 0), "b": (0, 0)}
        self.ids: dict[tuple[str, str], int] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.marks: dict[str, tuple[int, int]] = {}
        self.positions: dict[str, int] = {}
        self.floors: dict[str, int] = {}
        self.newest_at = 0.0

    def add(self, frame: Frame) -> bool:
        """Append it where it follows; False if something lies between. One that is there already is no news."""
        number, crc = self.ends.get(frame.log, (0, 0))
        if frame.last <= number:
            return True
        if frame.first != number + 1 or frame.prev != crc:
            return False
        self.frames.setdefault(frame.log, []).append(frame)
        self.ends[frame.log] = (frame.last, frame.crc)
        self._derive(frame)
        self._seen(self.incarnation, frame)
        return True

    def _derive(self, frame: Frame) -> None:
        self.newest_at = max(self.newest_at, frame.at)
        if frame.log == STATE:
            self._apply(frame)
            return
        for number, (event_id, _, key) in enumerate(frame.entries, frame.first):
            self.ids[frame.log, event_id] = number
            if key is not None:
                self.keys[frame.log, key] = event_id
        if frame.mark is not None:
            self.marks[frame.mark[0]] = (frame.mark[1], frame.last)

    def _apply(self, frame: Frame) -> None:
        for entry in frame.entries:
            if entry[0] == "position":
                self.positions[entry[1]] = entry[2]
            elif entry[0] == "trim":
                self.floors[entry[1]] = max(entry[2], self.floors.get(entry[1], 0))
            else:
                self.frames.setdefault(entry[1], [])
                self.ends.setdefault(entry[1], (0, 0))

    def cut(self, keep: Callable[[], bool]) -> Copy:
        """What a start finds after a crash: each log may have lost some of its newest frames."""
        copy = Copy(self.incarnation, lambda incarnation, frame: None)
        for frames in self.frames.values():
            kept = len(frames)
            while kept and not keep():
                kept -= 1
            for frame in frames[:kept]:
                copy.add(frame)
        copy._seen = self._seen
        return copy
