"""The port between the ledger's writer and its tables."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from actors.errors import AngariumError
from angarium.ledger.batch import BaseRow, HeldShare, ReceiverRow, RowBatch
from streams.following.journal_reader import Place


class LedgerError(AngariumError):
    """The ledger cannot be read or written; the text says why and what to do."""


class LeaseLost(LedgerError):
    """Another process has taken over a share of the shards, or has just written it: nothing was stored."""


class LedgerAway(LedgerError):
    """The database does not answer, or has closed the connection. It may come back."""


class Block(Struct, frozen=True):
    """A block of rows, its last position and its last time; `busy`: a delivery in it is under way."""

    number: int
    last: int
    until: int
    busy: bool


class Store(Protocol):
    """Tables that are written. All that one call writes is stored whole or not at all.

    The shards of the journal lie in `shares`, by their number modulo that. Each share is written by the one
    process that holds it, and has a place of its own in the journal.
    """

    @property
    def shares(self) -> int:
        """The number of shares."""

    async def hold(self, stream: str) -> dict[int, HeldShare]:
        """The shares of a stream that this process writes from now on; to be asked again every few seconds.

        Other processes hold the remaining shares.
        """

    async def place(self, stream: str) -> Place:
        """The place up to which a stream without shares is read."""

    async def receivers(self, names: Mapping[str, int]) -> dict[str, ReceiverRow]:
        """The receivers of these names, each with its shard (-1: unknown); one without a row is `fresh`."""

    async def write(self, stream: str, batch: RowBatch) -> None:
        """Store the rows together with the places. Raises `LedgerError` if a stored place is not the one
        before it, or the share is not held any more: then another process writes it."""

    async def rest(self, stream: str, holds: Mapping[int, HeldShare], seen_at: int) -> None:
        """Note that at `seen_at` the stream had nothing after these places. Raises as `write` does."""

    async def block(self, at: int) -> int:
        """The block for a batch whose first flush was stored at that instant."""

    async def facts_since_base(
        self, receiver: int, up_to: int | None = None
    ) -> tuple[BaseRow | None, list[tuple[int, int, str]]]:
        """The last base state (up to a position, if given), and the rows of `facts` after it, up to there.

        A row is a position, the time of the flush, and the facts in JSON.
        """

    async def add_base(self, base: BaseRow) -> None:
        """Store a base state."""

    async def configured(
        self, stream: str, before: Place, after: Place, rows: Sequence[tuple[str, int, int, str | None]]
    ) -> None:
        """Store configurations: receiver, time, revision, the document without secrets."""

    async def reached(self, stream: str) -> int:
        """The position up to which every share of a stream is read, by any process."""

    async def erase(
        self, stream: str, before: Place, after: Place, erased: Sequence[tuple[str, str]]
    ) -> None:
        """Erase what receivers answered to these events, by tenant and id, also where it is only freed.

        The requests were read of that stream, from the place `before` to `after`.
        """

    async def oldest(self) -> Block | None:
        """The oldest block that is full, or as many as are dropped together."""

    async def unbased(self, block: Block) -> list[tuple[int, str]]:
        """The receivers that may have facts in the block, and no base state that covers them."""

    def drop(self, block: Block) -> AsyncIterator[None]:
        """Drop a block in steps, with room for other writes in between. It may be begun again."""

    async def close(self) -> None:
        """Drop the connection; what was written is stored."""
