"""The port between the ledger's writer and its tables."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from actors.errors import AngariumError
from angarium.ledger.batch import BaseRow, ConfigurationRow, HeldShare, ReceiverRow, RowBatch
from streams.lost_tails.read_positions import ReadPosition


class LedgerError(AngariumError):
    """The ledger cannot be read or written; the text says why and what to do."""


class BadAddress(LedgerError):
    """A text that cannot be the address of a ledger; what to write instead."""


class LeaseLost(LedgerError):
    """Another process was faster: nothing was stored.

    It has taken over a share of the shards, or has just written it, or has dropped rows that were to be
    changed."""


class LedgerAway(LedgerError):
    """The database does not answer, or has closed the connection. It may recover."""


class Block(Struct, frozen=True):
    """A block of rows, its last position and its last time.

    - `busy`: a delivery in it is under way.
    - `half_dropped`: some of its rows are gone.
    """

    number: int
    last: int
    until: int
    busy: bool
    half_dropped: bool = False


class Store(Protocol):
    """The tables of the ledger, as its writer sees them. Each call is stored completely or not at all.

    The shards of the journal are divided into `shares`, by their number modulo `shares`. Each share is
    written by the one process that holds it, and has its own position in the journal.
    """

    @property
    def shown(self) -> str:
        """The whole path of the file, or the address of the database, for people."""

    @property
    def shares(self) -> int:
        """The number of shares."""

    async def renew_shares(self, stream: str) -> dict[int, HeldShare]:
        """The shares of a stream that this process writes from now on. Call this every few seconds.

        Other processes hold the remaining shares.
        """

    async def read_position(self, stream: str) -> ReadPosition:
        """The position up to which a stream without shares is read."""

    async def receivers(self, names: Mapping[str, int]) -> dict[str, ReceiverRow]:
        """The receivers of these names, each with its shard (-1: unknown); one without a row is `fresh`."""

    async def write(self, stream: str, batch: RowBatch) -> None:
        """Store the rows together with the positions up to which they were read.

        Raises `LedgerError` if a stored position is not the one before it, or the share is no longer held:
        then another process writes it."""

    async def note_end_reached(self, stream: str, shares: Mapping[int, HeldShare], seen_at: int) -> None:
        """Note that at `seen_at` the stream had nothing after these positions. Raises as `write` does."""

    async def block_for(self, at: int) -> int:
        """The block for a batch whose first flush was stored at that instant."""

    async def facts_since_base(
        self, receiver: int, up_to: int | None = None
    ) -> tuple[BaseRow | None, list[tuple[int, int, str]]]:
        """The last base state (up to a position, if given), and the rows of `facts` after it, up to there.

        A row is a position, the time of the flush, and the facts in JSON.
        """

    async def add_bases(self, bases: Sequence[BaseRow]) -> None:
        """Store base states of different receivers."""

    async def store_configurations(
        self, stream: str, before: ReadPosition, after: ReadPosition, rows: Sequence[ConfigurationRow]
    ) -> None:
        """Store configurations."""

    async def read_to(self, stream: str) -> int:
        """The position up to which every share of a stream is read, by any process."""

    async def erase(
        self, stream: str, before: ReadPosition, after: ReadPosition, erased: Sequence[tuple[str, str]]
    ) -> str:
        """Erase what receivers answered to these events, by tenant and id, from freed pages as well.

        The requests were read from that stream, between the positions `before` and `after`. Returns what
        keeps some of it in the files, in which case it has to be done again; empty if nothing.
        """

    async def oldest_full_block(self) -> Block | None:
        """The oldest block that is full, or as many as are dropped together."""

    async def receivers_without_base(self, block: Block) -> list[tuple[int, str, int]]:
        """The receivers with facts in the block that no base state covers.

        Each with its name, and the position up to which none of its facts is missing."""

    async def has_half_dropped(self) -> bool:
        """True if a block is being dropped, or was when a process died: queries do not find its remains."""

    def drop_block(self, block: Block) -> AsyncGenerator[None, None]:
        """Drop a block in steps, so that other writes can come in between. This can be repeated."""

    async def close(self) -> None:
        """Drop the connection; committed writes stay."""
