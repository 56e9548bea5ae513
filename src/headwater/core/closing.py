"""What is closed when its with-block ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager of itself, that closes at the end."""

    @abstractmethod
    def close(self) -> None:
        """Done with it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
