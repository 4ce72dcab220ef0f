"""The journal of one shard: facts gather, and go out in one fenced append at a time."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from actors.facts import Fact
from actors.state import State
from streams.claim import Claim
from streams.clock import Timekeeper
from streams.jetstream import JetStream
from streams.topology import Names


class Entry(Struct, frozen=True):
    """A fact, its index, and the state after it."""

    index: int
    fact: Fact
    state: State


class Listener(Protocol):
    """Who is told what becomes of the facts; all of it synchronously."""

    def floor(self, index: int) -> int:
        """Asked at the cut: the end of the unbroken run of messages released by the facts up to `index`."""

    def confirmed(self, entries: Sequence[Entry], sequence: int) -> None:
        """The journal holds these facts, at `sequence`. There are none in the sign of life of a quiet shard."""

    def fenced(self, why: str) -> None:
        """The shard is somebody else's: stop it, and ack nothing more."""


class Journal:
    """The journal of a shard under one claim, and under its continuation (`reclaim`)."""

    def __init__(
        self,
        js: JetStream,
        names: Names,
        claim: Claim,
        node: str,
        listener: Listener,
        *,
        time: Timekeeper,
        retention_s: float,
    ) -> None:
        self.index = 0
        self.confirmed_index = 0
        self.sequence = claim.sequence
        self.floor = claim.floor

    def start(self) -> None:
        """Begin to append."""

    @property
    def stalled(self) -> bool:
        """Whether nothing may be started: an append has been unconfirmed for more than a second."""
        raise NotImplementedError

    def add(self, fact: Fact, state: State, urgent: bool = False) -> int:
        """Take a fact and the state after it; returns its index, from 1. An `urgent` one does not wait."""
        raise NotImplementedError

    async def drain(self, timeout_s: float) -> bool:
        """Append all that was added; True where it is confirmed in time."""
        raise NotImplementedError

    async def suspend(self) -> None:
        """Append nothing more, for now: the lease is over. What is on its way stays undecided."""

    async def reclaim(self, claim: Claim) -> bool:
        """Go on under a new claim, if nobody else has owned the shard since the old one."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Append nothing more."""
