"""Checks at every step: at each start of an attempt, and at each stored message.

Nothing here takes the product's word for what it did. The server tells what it stored and which acks it got,
the receivers tell what came to them; the journal is folded as it lies in the server's stream.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from actors.ids import UNKNOWN_RECEIVERS
from actors.machine import facts as f
from actors.machine.event import Event
from actors.machine.outcome import Answered, Outcome
from actors.machine.state import UNCONFIRMED_MAX, State
from actors.memory.mailbox import MAILBOX_BYTES_MAX, MAILBOX_MAX
from actors.ports import Attempt, BatchAttempt
from actors.runtime.actor import Actor
from actors.runtime.unknown_receivers.record import UnknownReceiversRecord
from angarium.node.node import Node
from streams.fleet.lease import LEASE_MARGIN_S
from streams.installation.partitions import shard_of
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.envelope import decode_flush
from streams.journal.snapshots import Snapshot
from streams.reading.messages import event_of
from tests.sim.alerts.checks import Alerts
from tests.sim.batches.checks import Batches
from tests.sim.checks.attempts.concurrency import Concurrency
from tests.sim.checks.attempts.numbering import Numbers
from tests.sim.checks.attempts.repeats import Repeats
from tests.sim.checks.configurations import Configurations
from tests.sim.checks.fanout import Fanout
from tests.sim.checks.folded_journals import Deliveries, FoldedJournal
from tests.sim.checks.letters import Letters
from tests.sim.checks.rates import Rates, RatesOfTenants
from tests.sim.checks.storage import Checkpoints, DeliveriesKept, JournalKept, ParkedKept
from tests.sim.checks.strays import Strays
from tests.sim.handshakes.checks import Handshakes
from tests.sim.server.streams.store import Stored
from tests.sim.transforms.checks import Transforms
from tests.sim.world.process import Process
from tests.sim.world.world import World

_checkpoint = msgspec.json.Decoder(Checkpoint)
_snapshot = msgspec.json.Decoder(Snapshot)

_EVER = 1 << 60

BATCH_MAX = 256


class Checkers:
    """All of one run. `nodes` are the living nodes, by process name."""

    def __init__(self, world: World, names: Names, shards: int, ttl_s: float) -> None:
        self.world = world
        self.names = names
        self.shards = shards
        self.nodes: dict[str, Node] = {}
        self.deliveries = Deliveries()
        self.fanout = Fanout(world, names)
        self.journals = [FoldedJournal(shard, self.deliveries, world.fail) for shard in range(shards)]
        self.strays = Strays(names, world.fail)
        self.configurations = Configurations(names, world.fail)
        self.rates: dict[str, Rates] = {}
        self.rates_of_tenants = RatesOfTenants(world.fail)
        self.starts = 0
        self.on_start: Callable[[Process], None] = lambda process: None
        self._taken_at: dict[tuple[str, int], float] = {}
        self._concurrency: dict[tuple[str, str], Concurrency] = {}
        self._ttl_s = ttl_s
        self._beats: dict[str, float] = {}
        self.numbers = Numbers(world.fail)
        self._given: set[tuple[str, int]] = set()
        self._started_under = [0] * shards
        self.batches = Batches(world.fail)
        self.repeats = Repeats(world.fail)
        self._snapshots: dict[tuple[int, str], Snapshot] = {}  # Each shard has a record of unknown ones.
        self.letters = Letters(self.deliveries, world.fail)
        self.alerts = Alerts(world.fail)
        self.handshakes = Handshakes(world.fail)
        self.transforms = Transforms(world.fail)
        self.checkpoints = Checkpoints(world.fail)
        self.parked = ParkedKept(world.fail)
        self.journal_kept = JournalKept(names, world.fail)
        self.deliveries_kept = DeliveriesKept(self.deliveries, self.journal_of, world.fail)

    def journal_of(self, receiver: str) -> FoldedJournal:
        tenant, _, name = receiver.partition(".")
        return self.journals[shard_of(tenant, name, self.shards)]

    # ---- what happens between nodes and receivers

    def posted(self, receiver: str, position: int) -> bool:
        """True if an attempt of an event beyond the recorded frontier has started."""
        state = self.journal_of(receiver).states.get(receiver)
        recorded = state is not None and position <= state.frontier.position
        return self.numbers.has_started(receiver, position) and not recorded

    def token_taken(self, process: Process, position: int) -> None:
        """An attempt of the event there took its token; it counts once it has started."""
        self._taken_at[process.name, position] = self.world.now

    def started(self, process: Process, attempt: Attempt | BatchAttempt) -> None:
        self.starts += 1
        self._judge_start(process, attempt)
        self.on_start(process)

    def _judge_start(self, process: Process, attempt: Attempt | BatchAttempt) -> None:
        receiver, (event, sequence) = attempt.receiver, attempt.numbered[0]
        for each, number in attempt.numbered:
            what = receiver, number, each.position, each.id, attempt.ordinal
            process.say("START %s #%s of %d (%s), attempt %d", *what)
        self._check_owner(process, receiver)
        self.configurations.started(process, attempt)
        self.handshakes.started(attempt)
        self.transforms.started(attempt)
        rates = self.rates.setdefault(receiver, Rates())
        if sequence is None:
            host = self.nodes[process.name].host_of(receiver)
            skew_s = host.clock.now() - self.world.now if host else 0.0
            rates.takes.append(event.stored_at - skew_s)
            return
        decided_at = self._taken_at[process.name, event.position]
        rates.takes.append(decided_at)
        numbers = [number for _, number in attempt.numbered if number is not None]
        for each, number in zip((each for each, _ in attempt.numbered), numbers, strict=True):
            self._judge_event(process, receiver, each, number)
        if attempt.policy.order == "strict":
            self._check_strict(receiver, numbers)
        positions = [each.position for each, _ in attempt.numbered]
        if isinstance(attempt, BatchAttempt):
            actor = self._actor_of(process, receiver)
            if actor is not None:
                self.batches.started(attempt, positions, actor.state)
        self._check_memory(process, receiver)
        attempts = self._concurrency_of(process, receiver)
        if wrong := attempts.started(positions, attempt.policy, self.world.now, decided_at):
            self.world.fail(f"{receiver}: {wrong}")

    def _judge_event(self, process: Process, receiver: str, event: Event, sequence: int) -> None:
        self.numbers.started(receiver, event, sequence)
        if event.position in self.journal_of(receiver).numbering(receiver).refused:
            self.world.fail(f"{receiver}: the event at {event.position} was turned away, and is delivered")
        known = self.deliveries.event(event.position)
        if msgspec.structs.replace(event, stored_at=known.stored_at) != known:
            self.world.fail(f"{receiver}: {event} is not what was published, {known}")
        claimed = self.journal_of(receiver).claims[process.name]
        self.repeats.started(receiver, event.position, claimed)

    def _concurrency_of(self, process: Process, receiver: str) -> Concurrency:
        return self._concurrency.setdefault((process.name, receiver), Concurrency())

    def gone(self, name: str) -> None:
        """The process is dead; another one may come under its name."""
        for who, receiver in [each for each in self._concurrency if each[0] == name]:
            del self._concurrency[who, receiver]

    def taken(self, receiver: str, position: int) -> None:
        self._given.add((receiver, position))

    def proved(self, attempt: Attempt) -> None:
        self.handshakes.proved(attempt.receiver, attempt.policy)

    def ended(self, process: Process, attempt: Attempt | BatchAttempt, outcome: Outcome) -> None:
        if not process.alive:
            return
        receiver = attempt.receiver
        process.say("END %s #%s: %s", receiver, attempt.numbered[0][1], outcome)
        positions = [event.position for event, sequence in attempt.numbered if sequence is not None]
        self._concurrency_of(process, receiver).ended(positions, outcome, self.world.now)
        if isinstance(outcome, Answered) and outcome.status < 300:
            for position in positions:
                epoch = self.journal_of(receiver).claims[process.name].epoch
                self.repeats.taken(receiver, position, epoch)

    def _check_owner(self, process: Process, receiver: str) -> None:
        journal, now = self.journal_of(receiver), self.world.now
        claimed = journal.claims.get(process.name)
        epoch = claimed.epoch if claimed else 0
        newest = self._started_under[journal.shard]
        if not epoch or epoch < newest:
            self.world.fail(
                f"two owners: {process.name} (epoch {epoch}) posts to {receiver}, as epoch {newest} did"
            )
        self._started_under[journal.shard] = max(newest, epoch)
        ends_at = self._beats[process.name] + self._ttl_s - LEASE_MARGIN_S
        if now >= ends_at:
            self.world.fail(f"{process.name} posts to {receiver} {now - ends_at:.3f} s after its lease")

    def _check_strict(self, receiver: str, numbers: Sequence[int]) -> None:
        """Checks each number before that is not in the same POST: a 2xx has come back, or it is settled."""
        state = self.journal_of(receiver).states.get(receiver) or State(receiver=receiver)
        sequence = numbers[-1]
        unrecorded = range(state.frontier.sequence + 1, sequence)
        for before in (*(each.sequence for each in state.open if each.sequence < sequence), *unrecorded):
            position = self.numbers.named.get((receiver, before))
            if before in numbers:
                continue
            if position is None or not self.repeats.is_taken(receiver, position):
                self.world.fail(f"{receiver}: {sequence} starts, and {before} is not settled")

    def _actor_of(self, process: Process, receiver: str) -> Actor | None:
        host = self.nodes[process.name].host_of(receiver)
        return host.actors.get(receiver) if host else None

    def _check_memory(self, process: Process, receiver: str) -> None:
        actor = self._actor_of(process, receiver)
        if actor is None:
            return
        events = actor.pending.mailbox.events
        # One event always fits, and one that comes back from an attempt.
        size = sum(each.size for each in list(events)[2:])
        # A receiver with batches also has room for two of them, and for a page that was just read.
        more = 2 * BATCH_MAX if self.configurations.had_batches(receiver) else 0
        if len(events) > MAILBOX_MAX + 1 + more or size > MAILBOX_BYTES_MAX * (5 if more else 1):
            self.world.fail(f"{receiver}: {len(events)} events of {size} bytes are in memory")
        if actor.live.unconfirmed_deliveries > UNCONFIRMED_MAX:
            self.world.fail(f"{receiver}: {actor.live.unconfirmed_deliveries} settlements are unconfirmed")

    # ---- what the server stores

    def purged(self, stream: str, first: int) -> None:
        self.strays.purged(stream, first)
        if stream == self.names.journal:
            self.journal_kept.purged(first)
        elif stream == self.names.deliveries:
            self.deliveries_kept.purged(first)
        elif stream == self.names.events:
            self.fanout.purged(first)
            self.alerts.purged(first)

    def purged_one(self, stream: str, position: int) -> None:
        """A purge by subject has taken a message."""
        if self.strays.gone(stream, position):
            return
        if stream == self.names.deliveries:
            self.world.say("purged %d", position)
            self.deliveries_kept.purged_one(position)
            self.deliveries.delete(position)
        elif stream == self.names.events:
            self.fanout.purged_one(position)
            self.alerts.purged_one(position)

    def deleted(self, stream: str, position: int) -> None:
        """An operator has deleted a message; streams of keys replace theirs in the same way."""
        if self.strays.gone(stream, position):
            return
        if stream == self.names.deliveries:
            self.world.say("deleted %d", position)
            self.deliveries.delete(position)
        elif stream == self.names.dead_letters:
            self.letters.deleted(position)

    def stored(self, stream: str, message: Stored) -> None:
        if self.strays.stored(stream, message):
            self.world.say("stray %d: %s", message.sequence, message.subject)
            return
        names = self.names
        self.journal_kept.stored(stream, message)
        self.fanout.stored(stream, message)
        if stream == self.names.events:
            self.alerts.stored(message)
        if stream == names.deliveries:
            receiver = message.subject.split(".", 3)[3]
            at = message.at_ns / 1e9
            event = event_of(message.sequence, at, message.headers, message.data)
            self.deliveries.add(receiver, event)
            self.world.say("stored %d for %s: %s", message.sequence, receiver, event.id)
        elif stream == names.journal:
            self._journal(int(message.subject.rpartition(".")[2]), message)
        elif stream == names.dead_letters:
            self.letters.stored(message)
        elif stream == names.nodes:
            self._beats[message.subject.rpartition(".")[2]] = self.world.now
        elif stream == names.actors:
            self._actors(message)
        elif stream == names.receivers:
            self.configurations.stored(message, self.world.now)

    def _journal(self, shard: int, message: Stored) -> None:
        journal = self.journals[shard]
        flush = decode_flush(message.data, str(message.sequence))
        self.world.say("journal %d.%d %s", shard, message.sequence, flush)
        self._check_live(journal, flush.node, flush.epoch)
        floor, unknown = journal.floor, journal.unknown
        journal.add(message.sequence, flush)
        self._check_unknown(journal, unknown)
        for position in range(floor + 1, flush.floor + 1):
            self._check_released(journal, position, "the floor passes")
        self.fanout.routed(shard, journal.routed, flush.parked_tenants)
        for fact in flush.facts:
            self.transforms.record(fact)
            match fact:
                case f.Claimed():
                    self._check_takeover(flush.node, shard)
                    self._begin_again(flush.node, shard)
                case f.TurnedAway(events=turned_away):
                    self.letters.given_up(fact)
                    for position in range(floor + 1, turned_away[-1].position + 1):
                        self._check_released(journal, position, "unknown receivers are turned away above")
                case f.DeadLettered() | f.EventRefused():
                    self.letters.given_up(fact)
                case f.AlertRaised() | f.AlertRecovered() | f.AlertsPublished():
                    self.alerts.record(fact)
                case f.HandshakeStarted() | f.HandshakeSucceeded() | f.HandshakeFailed():
                    self.handshakes.record(fact)
                case f.Resumed() | f.Retargeted() | f.Removed() | f.Forgot():
                    self._let_go(fact.receiver)
                case f.Unparked(receiver=receiver):
                    for position in journal.unsettled(receiver):
                        self._check_released(journal, position, "the floor has passed")
                case f.RateSet(receiver=receiver, limit=limit, bucket=bucket):
                    at = self._true_time(flush.node, shard, bucket.at) if bucket else self.world.now
                    self.rates.setdefault(receiver, Rates()).limits.append((at, limit))
                case f.Delivered(kind="event", receiver=receiver, events=events):
                    for each in events:
                        if (receiver, each.position) not in self._given:
                            self.world.fail(f"{receiver}: {each.position} is delivered in the records alone")

    def _check_takeover(self, claimant: str, shard: int) -> None:
        """Checks that no other node may still start attempts: both would be in flight at a time."""
        for name, node in self.nodes.items():
            running = node.owned.get(shard) if name != claimant else None
            if running and not running.ended.is_set() and running.host.within_lease():
                self.world.fail(f"{claimant} claims shard {shard} from {name}, which may go on posting")

    def _begin_again(self, node: str, shard: int) -> None:
        """Others may have owned it in between, and had their successes."""
        for (who, receiver), attempts in self._concurrency.items():
            if who == node and self.journal_of(receiver).shard == shard:
                attempts.let_go(self.world.now)

    def _let_go(self, receiver: str) -> None:
        for (_, whose), attempts in self._concurrency.items():
            if whose == receiver:
                attempts.let_go(self.world.now)

    def _true_time(self, node: str, shard: int, at: float) -> float:
        """Converts a time `at` of the owner's clock to true time; now, if the owner is gone."""
        owned = self.nodes[node].owned.get(shard) if node in self.nodes else None
        return at - owned.host.clock.now() + self.world.now if owned else self.world.now

    def _check_live(self, journal: FoldedJournal, node: str, epoch: int) -> None:
        """Checks at the next flush of an owner, which confirms the one before: memory and journal agree."""
        shard = self.nodes[node].owned.get(journal.shard) if node in self.nodes else None
        if shard is None or shard.ended.is_set() or shard.claim.epoch != epoch or not journal.flushes:
            return
        position, flush = journal.flushes[-1]
        if flush.epoch != epoch or shard.journal.position != position:
            return
        for fact in flush.facts:
            if not isinstance(fact, f.Claimed):
                known: Actor | UnknownReceiversRecord | None = shard.host.actors.get(fact.receiver)
                actor = shard.host.residents.unknown if fact.receiver == UNKNOWN_RECEIVERS else known
                if actor is not None and actor.loaded:
                    self._check_actor(actor, journal)

    def _check_actor(self, actor: Actor | UnknownReceiversRecord, journal: FoldedJournal) -> None:
        state = journal.states[actor.receiver]
        found = actor.live.confirmed
        if found != state:
            self.world.fail(f"{actor.receiver}: in memory is {found}, by the journal it is {state}")

    def acked(self, node: str, shard: int, epoch: int, position: int) -> None:
        """The server has got an ack for all up to there, by the consumer of a claim."""
        if self._is_owner(node, shard, epoch):
            journal = self.journals[shard]
            for each in journal.newly_acked(position):
                self._check_released(journal, each, "acked is")

    def acked_events(self, node: str, shard: int, epoch: int, position: int) -> None:
        """Checks an ack of events: the journal must hold that they are routed."""
        journal = self.journals[shard]
        if self._is_owner(node, shard, epoch) and position > journal.routed:
            self.world.fail(
                f"{node} acks events of partition {shard} up to {position}, routed are {journal.routed}"
            )

    def _is_owner(self, node: str, shard: int, epoch: int) -> bool:
        """One that comes back from the dead acks by what was true in its time."""
        journal = self.journals[shard]
        claimed = journal.claims.get(node)
        if claimed is None:
            self.world.fail(f"{node} acks something of shard {shard}, which it never owned")
        return claimed is not None and claimed.epoch == journal.epoch == epoch

    def _check_unknown(self, journal: FoldedJournal, before: State) -> None:
        """Checks that undecided events have an outcome or an actor, where the record goes on."""
        after = journal.unknown
        if before.parked:
            end = after.frontier.position if after.parked else max(after.frontier.position, journal.floor)
            for position in range(before.frontier.position + 1, end + 1):
                self._check_released(journal, position, "the record of unknown receivers passes")

    def _check_released(self, journal: FoldedJournal, position: int, what: str) -> None:
        found = self.deliveries.events.get(position)
        if found is None or self.journal_of(found[0]) is not journal or position in self.deliveries.deleted:
            return  # What is deleted is never handed out again; an open event of it is in the state.
        if not journal.is_released(position):
            state = journal.states.get(found[0])
            self.world.fail(f"{what} the event of {found[0]} at {position}, which nothing releases: {state}")

    # ---- snapshots

    def _actors(self, message: Stored) -> None:
        """A batch ends with the checkpoint that is true with it."""
        _, _, shard, receiver = message.subject.split(".", 3)
        journal = self.journals[int(shard)]
        if receiver == "_checkpoint":
            self.world.say("checkpoint of %s %s", shard, message.data)
            checkpoint = _checkpoint.decode(message.data)
            self.checkpoints.stored(journal.shard, checkpoint)
            self._check_checkpoint(journal, checkpoint)
        elif receiver.startswith("_parked."):
            self.world.say("%s of %s: %s", receiver, shard, message.data)
            self.parked.stored(journal.shard, receiver, message.data)
        elif receiver not in ("_owner", "_proof", "_refused"):
            self.world.say("snapshot of %s %s", receiver, message.data)
            key = journal.shard, receiver
            snapshot, before = _snapshot.decode(message.data), self._snapshots.get(key)
            if before is not None and snapshot.as_of < before.as_of:
                self.world.fail(f"{receiver}: its snapshot goes back from {before.as_of} to {snapshot.as_of}")
            self._snapshots[key] = snapshot
            truth = journal.state_at(receiver, snapshot.as_of)
            if snapshot.state != truth:
                self.world.fail(
                    f"{receiver}: the snapshot at {snapshot.as_of} says {snapshot.state}, the journal {truth}"
                )

    def _check_checkpoint(self, journal: FoldedJournal, checkpoint: Checkpoint) -> None:
        """Snapshots and tail give the whole fold; what is parked is named; nothing needed is let go."""
        at, named = checkpoint.journal_position, self.parked.named(journal.shard, checkpoint)
        flush = journal.by_position.get(at)
        if flush is not None and checkpoint.floor > flush.floor:
            self.world.fail(f"the checkpoint at {at} has the floor {checkpoint.floor}, not {flush.floor}")
        if flush is not None and checkpoint.routed != flush.routed:
            self.world.fail(f"the checkpoint at {at} has routed {checkpoint.routed}, not {flush.routed}")
        if flush is not None and checkpoint.parked_tenants != flush.parked_tenants:
            said, says = flush.parked_tenants, checkpoint.parked_tenants
            self.world.fail(f"the checkpoint at {at} has parked tenants {says}, not {said}")
        for receiver in journal.past:
            changed = journal.last_change(receiver, at)
            snapshot = self._snapshots.get((journal.shard, receiver))
            if changed > (snapshot.as_of if snapshot else 0):
                self.world.fail(f"{receiver} changed at {changed}: no snapshot says so at checkpoint {at}")
            state = journal.state_at(receiver, at)
            # A part may be younger than the checkpoint: the tail names those that are not in it any more.
            named_or_told = receiver in named or journal.last_change(receiver, _EVER) > at
            if (state.parked or state.burials or state.unpublished_alerts) and not named_or_told:
                self.world.fail(f"{receiver} has to come back, and the checkpoint at {at} does not name it")
            needed = self.deliveries_kept.needed(state)
            if receiver == UNKNOWN_RECEIVERS and state.parked:
                needed = min(filter(None, (needed, *self._undecided(journal, state))), default=None)
            if needed is not None and needed < checkpoint.needed:
                self.world.fail(f"{receiver} needs {needed}, the checkpoint says {checkpoint.needed}")

    def _undecided(self, journal: FoldedJournal, record: State) -> Iterator[int]:
        """The positions at which the shard has events of unknown receivers, beyond what was decided."""
        for position, (receiver, _) in self.deliveries.events.items():
            there = position > record.frontier.position and position not in self.deliveries.deleted
            if there and self.journal_of(receiver) is journal and receiver not in journal.states:
                yield position

    # ---- the end

    def unsettled(self) -> str:
        """Says in a sentence what is left to be done; nothing when all is quiet."""
        for receiver in self.deliveries.positions:
            positions = self.deliveries.between(receiver, 0, _EVER)
            if not positions:
                continue
            journal = self.journal_of(receiver)
            state = journal.states.get(receiver)
            left = journal.left(receiver, positions)
            if journal.unknown.is_unfinished:
                return f"names that nobody knows have events to be decided or buried: {journal.unknown}"
            if not left:
                continue
            if state is None:
                return f"{receiver}: nothing is recorded yet, {len(positions)} events wait"
            if state.open or state.burials or state.parked:
                return f"{receiver}: something is open, to be buried or parked: {state}"
            if not journal.is_settled(receiver, left[-1], state):
                return f"{receiver}: the event at {left[-1]} waits behind {state.frontier.position}"
        return self.fanout.unsettled() or self.strays.unsettled() or self.alerts.unsettled()

    def check_end(self) -> None:
        """All is quiet: every event is recorded as settled, and every record is true."""
        for name, node in self.nodes.items():
            for shard in node.owned.values():
                if not (shard.ended.is_set() or shard.is_suspended) and shard._router._bytes:
                    self.world.fail(f"{name} counts {shard._router._bytes} bytes of events, and has none")
        for receiver, rates in self.rates.items():
            if excess := rates.excess():
                self.world.fail(f"{receiver}: {excess}")
        self.letters.check()
