"""The snapshots of one shard as its owner keeps them: those of changed actors, written with a checkpoint."""

import asyncio
import logging
from typing import Protocol

from actors.errors import Unavailable, Unusable
from actors.machine.state import State
from actors.memory.retention import NeededPosition
from actors.runtime.host import Host
from streams.buckets.known_configurations import KnownConfigurations
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import Claim
from streams.journal.journal import Journal
from streams.journal.recovery import Recovery
from streams.journal.snapshots import Snapshots
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.retry import ReasonLog

SNAPSHOT_EVERY_S = 5.0
log = logging.getLogger(__name__)


class SnapshotOwner(Protocol):
    """The ownership whose snapshots are written."""

    @property
    def number(self) -> int: ...
    @property
    def claim(self) -> Claim: ...
    @property
    def is_suspended(self) -> bool: ...
    @property
    def host(self) -> Host: ...
    @property
    def journal(self) -> Journal: ...

    def refuse(self, why: str) -> None:
        """Refuse the shard as it is."""
        ...

    def ownership_lost(self, why: str) -> None:
        """Stop at once, since another node owns the shard."""
        ...


class ShardSnapshots:
    """Writes the snapshots of a shard, and deletes those that are no longer needed.

    - `stored`: the snapshots under the owner's present claim; they are replaced by `continue_with`.
    - `current_at`: when the stored snapshots last had everything that was confirmed.
    """

    def __init__(
        self,
        owner: SnapshotOwner,
        stored: Snapshots,
        recovery: Recovery,
        js: JetStream,
        configurations: KnownConfigurations,
    ) -> None:
        self.current_at = owner.claim.at
        self._owner = owner
        self._stored = stored
        self._created = recovery.created
        self._parked = recovery.parked_list
        self._js = js
        self._configurations = configurations
        self._written = 0, NeededPosition(0)
        self._writing = asyncio.Lock()
        self._leftovers: dict[str, State] = {}

    def continue_with(self, stored: Snapshots) -> None:
        """Write under another claim from now on."""
        self._stored = stored

    async def write_regularly(self) -> None:
        """Write every 5 s, unless the shard is suspended, until this is cancelled or the shard ends."""
        while not self._owner.host.stopped:
            await asyncio.sleep(SNAPSHOT_EVERY_S)
            if not self._owner.is_suspended:
                await self.write()

    async def write(self) -> None:
        """Write the changed actors and the checkpoint, as of the last confirmed flush.

        There is one write at a time: a checkpoint must not get ahead of states that another write has taken
        and not stored yet.
        """
        async with self._writing:
            await self._write()

    async def find_leftovers(self) -> None:
        """Look through the snapshots of receivers without a configuration, for those that may be deleted.

        The next write deletes these. Raises `Unavailable` and `ApiError`.
        """
        host = self._owner.host
        for receiver in await self._stored.receivers():
            if receiver not in host.actors and not self._configurations.is_known(receiver):
                try:
                    state = await self._stored.load(receiver)
                except Unusable as error:
                    log.warning("snapshot.unreadable", extra={"receiver": receiver, "why": str(error)})
                    continue
                if state is not None and host.forgettable({receiver: state}):
                    self._leftovers[receiver] = state

    def _absent_leftovers(self) -> dict[str, State]:
        """The leftovers whose actors are not in memory."""
        host = self._owner.host
        awake = host.actors.keys() | host.unsaved.receivers
        return {receiver: state for receiver, state in self._leftovers.items() if receiver not in awake}

    async def _write(self) -> None:
        owner, stored, parked = self._owner, self._stored, self._parked
        host, journal = owner.host, owner.journal
        needed, began_at = host.needed(), host.clock.now()
        if (journal.position, needed) == self._written:
            self.current_at = began_at
            return
        states = host.unsaved.take()
        forget = set(host.forgettable(states | self._absent_leftovers()))
        kept = [state for receiver, state in states.items() if receiver not in forget]
        parked.update(states.values())
        checkpoint = Checkpoint(
            journal_position=journal.position,
            floor=journal.floor,
            routed=journal.routing.routed,
            parked_tenants=journal.routing.parked_tenants,
            needed=needed.position,
            holder=needed.receiver,
            parked_parts=parked.as_of(journal.position),
            unclean=owner.claim.unclean,
            created=self._created,
            marks=journal.marks,
        )
        is_written: bool | None
        try:
            is_written = await stored.write(
                kept, sorted(forget), checkpoint.journal_position, checkpoint, parked
            )
        except (Unavailable, ApiError) as error:
            ReasonLog(self._js, log, "snapshot.delayed", shard=owner.number).log_once(str(error))
            is_written = None
        except Unusable as error:
            owner.refuse(str(error))
            is_written = None
        if is_written:
            host.snapshots_written()
            parked.written(checkpoint.journal_position)
            self._leftovers.clear()
            self._written = checkpoint.journal_position, needed
            self.current_at = began_at
            return
        host.unsaved.take_back()
        if is_written is False and stored is self._stored and not owner.is_suspended:
            owner.ownership_lost("another node owns the shard's snapshots")
