"""The checks after a stream lost its tail: they know what was lost, and no longer expect it."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from actors.ports import Attempt, BatchAttempt
from streams.journal.envelope import Flush, decode_flush
from streams.nats.errors import RepairError
from streams.nats.jetstream import JetStream
from streams.repair.acceptance import accept_loss
from streams.repair.damage import find_damage
from streams.repair.preconditions import dead_holders, takes_over_from
from tests.sim.run import ProcessTime, WatchedReplicas
from tests.sim.server.streams.store import Stored
from tests.sim.stage import Stage
from tests.sim.world.process import Process


class Post(Struct, frozen=True):
    """An attempt that was made after the loss."""

    receiver: str
    sequence: int | None
    position: int
    id: str


class AfterLostTail:
    """Takes the place of the checkers of a stage.

    `posts` are the attempts since then, `repaired` the commands that ended.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.posts: list[Post] = []
        self.errors: list[str] = []
        self.repaired: list[Process] = []
        self._repairs = 0
        checkers = stage.checkers
        for name in ("stored", "acked", "acked_events", "ended", "taken", "purged", "token_taken"):
            setattr(checkers, name, lambda *_: None)
        checkers.started = self._started  # type: ignore[method-assign]
        checkers.fanout.routed = lambda *_: None  # type: ignore[method-assign]
        stage.world.fail = self._failed  # type: ignore[method-assign]

    def _failed(self, reason: str, cause: BaseException | None = None) -> None:
        self.errors.append(reason)

    def _started(self, process: Process, attempt: Attempt | BatchAttempt) -> None:
        for event, sequence in attempt.numbered:
            self.posts.append(Post(attempt.receiver, sequence, event.position, event.id))

    def lose_tail(self, stream: str, kept: int) -> list[Stored]:
        """The stream ends at `kept`, as if nothing had ever followed; returns what it had."""
        lost_from = self.stage.run.server.streams[stream]
        store = lost_from.store
        before = list(store.messages.values())
        for position in [each for each in store.messages if each > kept]:
            store.remove(position)
        store.last, store.first = kept, min(store.first, kept + 1)
        lost_from.replicas = WatchedReplicas(lost_from, self.stage.checkers)
        return before

    def bring_back(self, stream: str, messages: list[Stored]) -> None:
        """The stream is again as it was."""
        restored = self.stage.run.server.streams[stream]
        self.lose_tail(stream, 0)
        for message in messages:
            restored.store.add(message)
        restored.replicas = WatchedReplicas(restored, self.stage.checkers)

    def repair(self, dies_at: int = 0, subject: str = "") -> bool:
        """Accept the loss, as an operator does. Whether it ended; the command dies at its nth message, on
        that subject where one is given."""
        process = self.begin_repair(dies_at, Process.kill, subject)
        self.stage.until(lambda: not process.alive)
        return process in self.repaired

    def begin_repair(self, at: int, act: Callable[[Process], None], subject: str = "") -> Process:
        """Begins a repair; something is done to the command at its nth message."""
        stage, sent = self.stage, 0
        names = stage.run.names

        async def main(process: Process) -> None:
            wire = await stage.run.network.connect(process)
            js = JetStream(wire)
            await js.start()
            agreed = await find_damage(js, names, 0)
            publish = wire.publish

            async def counted(*args: Any, **more: Any) -> None:
                nonlocal sent
                if subject in ("", args[0]):
                    sent += 1
                    if sent == at:
                        act(process)
                await publish(*args, **more)

            wire.publish = counted  # type: ignore[method-assign]
            may_claim = takes_over_from(await dead_holders(js, names, [0]))
            try:
                await accept_loss(
                    js, names, 0, "repair", ProcessTime(process), may_claim=may_claim, agreed=agreed
                )
                self.repaired.append(process)
            except RepairError as error:  # It was done before, say, and a node owns the shard.
                stage.world.say("%s: %s", process.name, error)
            await js.stop()
            await wire.close()

        self._repairs += 1
        return stage.world.spawn(f"repair-{self._repairs}", main)

    def recreate(self, stream: str) -> None:
        """An operator deletes a stream, and makes it again."""
        self.lose_tail(stream, 0)
        recreated = self.stage.run.server.streams[stream]
        recreated.created_ns = recreated.timing.wall_ns()

    @property
    def recorded(self) -> list[bytes]:
        """The journal of shard 0."""
        run = self.stage.run
        store = run.server.streams[run.names.journal].store
        subject = run.names.journal_of(0)
        return [each.data for each in store.messages.values() if each.subject == subject]

    @property
    def flushes(self) -> list[Flush]:
        """The flushes of the journal, decoded."""
        return [decode_flush(each, "the journal") for each in self.recorded]

    @property
    def refused(self) -> str:
        """The recorded reason why shard 0 is refused; empty if it is not."""
        record = self.stage.run.server.streams[self.stage.run.names.actors].store.last_of(
            self.stage.run.names.actor_keys.refusal(0)
        )
        return record.data.decode() if record is not None else ""

    @property
    def owned(self) -> bool:
        return any(
            0 in node.owned and not node.owned[0].ended.is_set()
            for node in self.stage.checkers.nodes.values()
        )

    def expect_refused(self, stream: str) -> None:
        """The shard is recorded as refused for that stream, and has no owner."""
        self.stage.expect(f'"{stream}"' in self.refused, f"not refused: {self.refused!r}, {self.errors}")
        self.stage.expect(not self.owned, "a refused shard is owned")
