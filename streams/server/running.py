"""A server that runs for the length of an `async with` block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class RunningServer(ABC):
    """Starts when the block begins, and stops when it ends."""

    @abstractmethod
    async def start(self) -> None:
        """Start, and return when clients can connect. Raises ServerError."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop cleanly; does nothing if it was not started."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
