"""The port between the ledger's writer and its tables."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from actors.errors import AngariumError
from angarium.ledger.batch import BaseRow, ReceiverRow, RowBatch
from streams.following.journal_reader import Place

SCHEME = "sqlite:///"


class LedgerError(AngariumError):
    """The ledger cannot be read or written; the text says why and what to do."""


class Block(Struct, frozen=True):
    """A block of rows, its last position and its last time; `busy`: a delivery in it is under way."""

    number: int
    last: int
    until: int
    busy: bool


class Store(Protocol):
    """Tables that one process writes. Each call stores everything or nothing."""

    async def place(self, stream: str) -> Place:
        """The place up to which a stream is read."""

    async def receivers(self, names: Mapping[str, int]) -> dict[str, ReceiverRow]:
        """The receivers of these names, each with its shard (-1: unknown); one without a row is `fresh`."""

    async def write(self, stream: str, batch: RowBatch) -> None:
        """Store the rows together with the place.

        Raises `LedgerError` if the stored place is not the one before it: then another process writes, too.
        """

    async def rest(self, stream: str, place: Place, seen_at: int) -> None:
        """Note that at `seen_at` the stream had nothing after the place."""

    @property
    def block(self) -> int:
        """The block that the next batch goes to."""

    async def facts_since_base(
        self, receiver: int, up_to: int | None = None
    ) -> tuple[BaseRow | None, list[tuple[int, int, str]]]:
        """The last base state (up to a position, if given), and the rows of `facts` after it, up to there.

        A row is a position, the time of the flush, and the facts in JSON.
        """

    async def add_base(self, base: BaseRow) -> None:
        """Store a base state."""

    async def configured(
        self, stream: str, place: Place, rows: Sequence[tuple[str, int, int, str | None]]
    ) -> None:
        """Store configurations: receiver, time, revision, the document without secrets."""

    async def oldest(self) -> Block | None:
        """The oldest block that is full."""

    async def unbased(self, block: Block) -> list[tuple[int, str]]:
        """The receivers that have facts in the block, and no base state that covers them."""

    def drop(self, block: Block) -> AsyncIterator[None]:
        """Drop a block in steps, with room for other writes in between. It may be begun again."""

    async def close(self) -> None:
        """Close the connection; everything written is stored."""


def path_of(location: str) -> Path:
    """The file of a ledger, `sqlite:///relative` or `sqlite:////absolute`. Raises LedgerError."""
    path = location.removeprefix(SCHEME)
    if path == location or not path:
        raise LedgerError(
            f"{location!r} is not a ledger: write sqlite:///a/file, or sqlite:////var/lib/ledger.db"
        )
    return Path(path)
