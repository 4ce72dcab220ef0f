"""The receivers' configurations: follows their bucket and keeps the valid ones that are in force.

Every operator can put anything into the bucket with the nats CLI. A configuration that cannot be used is
reported, and the last valid one stays in force; the bucket keeps some revisions of each key, so that a node
that has just started finds it, too. There are two sources of knowledge: the follower, in the order of the
bucket, and `confirm`, which asks the leader and may be ahead of the follower. So each receiver remembers the
newest revision that is known, and older ones change nothing.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from actors.configuration.parsing import bounded_members, parse_members
from actors.configuration.policy import Policy, Rate
from actors.configuration.transform import key_hash, transform_hash
from actors.errors import InvalidPolicy, Unavailable
from actors.machine.bucket import CLOCK_SKEW_S
from actors.ports import Absent, Invalid, Removal
from actors.subscriptions import Subscriptions
from streams.buckets.follower import Follower, is_removal
from streams.buckets.stored_configurations import StoredConfigurations, created_at, removal_in
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.reading.messages import RECEIVER_CHECKED_MAX, receiver_problem
from streams.sealing.documents import OpenedMembers, opened
from streams.sealing.keys import Keys, no_keys

log = logging.getLogger(__name__)


class _KnownConfiguration(Struct, gc=False):
    """The current knowledge about one receiver.

    - `revision`: the newest one seen, of `stored_at`; `exists`: whether it is a configuration or a removal.
    - `problems`: those of this revision, if it is invalid.
    - `policy`: of the newest valid revision (`policy_revision`), which may be an older one.
    - `unusable`: the reasons why this node cannot send by that policy; `needs_key`: further keys end them.
    - `created_at`: when it was created, put first, or first after a removal; 0.0 if that is not known.
    """

    revision: int = 0
    stored_at: float = 0.0
    exists: bool = False
    problems: tuple[str, ...] = ()
    policy: Policy | None = None
    policy_revision: int = 0
    unusable: tuple[str, ...] = ()
    needs_key: bool = False
    created_at: float = 0.0


class KnownConfigurations:
    """The configurations that are known, of all receivers; implements `actors.ports.Policies`.

    - `stored`: the same configurations in their bucket.

    `unusable` says why a node with these settings cannot send by a valid policy, as one that names a profile
    which the node does not have. No older one takes its place: that might send another way than the operator
    wants. The receiver keeps its subscriptions, and its events wait. The same holds for a policy with a
    secret that `keys`, the keys of now, cannot open; `open_again` tries once more.

    What is wrong with a configuration is logged, unless `logs` is False: nodes log it, and the API may follow
    the bucket in the same process.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        default_rate: Rate | None = None,
        *,
        unusable: Callable[[str, Policy], tuple[str, ...]] = lambda receiver, policy: (),
        keys: Callable[[], Keys] = no_keys,
        logs: bool = True,
    ) -> None:
        self.stored = StoredConfigurations(js, names, keys=keys)
        self._stream = names.receivers
        self._names = names
        self._default_rate = default_rate
        self._unusable = unusable
        self._keys = keys
        self._unopened: dict[str, StoredMessage] = {}
        self._log_level = logging.WARNING if logs else logging.DEBUG
        self._known: dict[str, _KnownConfiguration] = {}
        self._removals: dict[str, Removal] = {}
        self._newest_created_at = 0.0
        self._listeners: list[Callable[[str], None]] = []
        self._catching_up: asyncio.Task[None] | None = None
        self._next_catch_up: asyncio.Task[None] | None = None
        self._complete = asyncio.Event()
        self._follower = Follower(
            js, self._stream, names.receiver(">"), self._follow, whole_stream=True,
            begins_again=self._begin_again, is_complete=self._drop_unseen,
        )  # fmt: skip

    async def start(self) -> None:
        """Return when all existing configurations have been read."""
        await self._follower.start()
        self._complete.set()

    async def stop(self) -> None:
        for task in filter(None, (self._catching_up, self._next_catch_up)):
            task.cancel()
        await self._follower.stop()

    @property
    def is_complete(self) -> bool:
        """True once all configurations that existed at the start have been read."""
        return self._complete.is_set()

    async def until_complete(self) -> None:
        """Return once all configurations that existed at the start have been read."""
        await self._complete.wait()

    @property
    def applied(self) -> int:
        """The position in the bucket up to which all is known."""
        return self._follower.applied

    async def catch_up(self) -> None:
        """Return when everything is known that the leader of the bucket knows by now. Raises `Unavailable`.

        Callers share one request; a caller that comes while one is under way waits for the next.
        """
        if self._next_catch_up is None:
            self._next_catch_up = asyncio.ensure_future(self._catch_up(self._catching_up))
            # If all callers have given up by the time it fails, none of them takes the exception.
            self._next_catch_up.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._next_catch_up)

    async def _catch_up(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._catching_up, self._next_catch_up = self._next_catch_up, None
        try:
            await self._follower.catch_up()
        except ApiError as error:
            raise Unavailable(f"cannot read {self._stream}: {error}") from error

    async def read_again(self) -> None:
        """Read a recreated bucket, with revisions of its own; until it differs, known values stay valid."""
        await self._follower.start_over()

    def _begin_again(self) -> None:
        self._removals.clear()
        for known in self._known.values():
            known.revision = known.policy_revision = 0

    def _drop_unseen(self) -> None:
        """Forget the configurations that are no longer in the bucket."""
        for receiver in [name for name, known in self._known.items() if not known.revision]:
            del self._known[receiver]
            self._notify(receiver)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a receiver whenever its configuration has changed. It must not raise."""
        self._listeners.append(listener)

    def policy(self, receiver: str) -> Policy | None:
        """The configuration in force: the last valid one, with the installation's default rate filled in.

        None if there is none, or if this node cannot send by it.
        """
        known = self._known.get(receiver)
        return known.policy if known and not known.unusable else None

    def revision(self, receiver: str) -> int:
        """The revision of the last valid configuration; 0 if none is known."""
        known = self._known.get(receiver)
        return known.policy_revision if known else 0

    def subscriber(self, receiver: str) -> Policy | None:
        """The configuration that says which events the receiver gets, even if this node cannot send them."""
        known = self._known.get(receiver)
        return known.policy if known else None

    def is_known(self, receiver: str) -> bool:
        """True if there is a configuration, valid or not."""
        known = self._known.get(receiver)
        return known is not None and known.exists

    def receivers(self) -> list[str]:
        """The receivers that have a configuration, valid or not, in no order."""
        return [receiver for receiver, known in self._known.items() if known.exists]

    def has_record(self, receiver: str) -> bool:
        """True if there is a configuration, valid or not, or one was removed."""
        return receiver in self._known or receiver in self._removals

    def existing_at(self, at: float, receivers: tuple[str, ...]) -> tuple[str, ...]:
        """Leave out those of the receivers that were created after that time.

        Each stream has the time of its own leader, so a receiver counts as a little older than it is. If two
        clocks differ by more, a new receiver misses events that were published after it was put.
        """
        until = at + CLOCK_SKEW_S
        if until >= self._newest_created_at:
            return receivers
        return tuple(each for each in receivers if self._created_at(each) <= until)

    def _created_at(self, receiver: str) -> float:
        known = self._known.get(receiver)
        return known.created_at if known else 0.0

    def problems(self, receiver: str) -> tuple[str, ...]:
        """The reasons why the newest configuration is not in force, a sentence per field; empty if it is."""
        known = self._known.get(receiver)
        return known.problems + known.unusable if known else ()

    def needs_key(self, receiver: str) -> bool:
        """True if the newest configuration is in force as soon as this process has further keys."""
        known = self._known.get(receiver)
        return known is not None and known.needs_key and not known.problems

    def removal(self, receiver: str) -> Removal | None:
        """The last known removal, from the bucket itself or from a configuration that was put since."""
        return self._removals.get(receiver)

    async def confirm(self, receiver: str) -> Policy | Absent | Invalid:
        """Ask the leader of the bucket, and remember its answer. Raises `Unavailable`."""
        before = self._known.get(receiver)
        revision = before.revision if before else 0
        stored_at = before.stored_at if before else 0.0
        message = await self.stored.last(receiver)
        if message is not None:
            other = message.position == revision and message.stored_at != stored_at
            if other or message.position < revision:
                # The bucket lost its tail, and a revision may be used again.
                await self.read_again()
                revision = 0
            removal_is_new = False
            if message.position != revision:
                removal_is_new = self._learn_removal(
                    receiver, await self.stored.removal_before(receiver, message)
                )
            self._learn(receiver, message, noted=removal_is_new)
        elif before and before.exists and before.revision == revision:
            # The key was deleted together with its marker.
            before.exists, before.policy, before.problems, before.unusable = False, None, (), ()
            self._notify(receiver)
        known = self._known.get(receiver)
        self._forget(receiver, self._follower.applied)
        if known is None or not known.exists:
            return Absent()
        return self.policy(receiver) or Invalid(self.problems(receiver))

    def _follow(self, message: StoredMessage) -> None:
        receiver = self._names.receiver_of_configuration(message.subject)
        problem = receiver_problem(receiver[:RECEIVER_CHECKED_MAX])
        if problem:
            log.log(self._log_level, "receiver.misnamed", extra={"key": receiver[:160], "why": problem})
            return
        self._learn(receiver, message)
        self._forget(receiver, message.position)

    def _learn(self, receiver: str, message: StoredMessage, *, noted: bool = False) -> None:
        """Take a revision unless a newer one is known; `noted`: it mentions a removal that was not known."""
        changed = self._learn_removal(receiver, removal_in(message)) or noted
        known = self._known.setdefault(receiver, _KnownConfiguration())
        revision = message.position
        if revision <= known.policy_revision or revision == known.revision:
            if changed:
                self._notify(receiver)
            return
        before = (known.exists, known.policy, known.problems)
        exists = not is_removal(message)
        problems = self._take(receiver, known, message) if exists else self._drop_policy(receiver, known)
        if not problems:
            known.policy_revision = revision
        if revision > known.revision:
            known.created_at = self._created_at_after(
                receiver, message, known.created_at if known.exists else 0.0
            )
            known.revision, known.exists, known.problems = revision, exists, problems
            known.stored_at = message.stored_at
        if changed or (known.exists, known.policy, known.problems) != before:
            self._notify(receiver)

    def open_again(self) -> None:
        """Open what could not be opened when it was read: there are other keys now."""
        for receiver, message in [*self._unopened.items()]:
            known = self._known.get(receiver)
            if known is None or known.policy is None or known.policy_revision != message.position:
                del self._unopened[receiver]
                continue
            before = known.policy, known.unusable
            if problems := self._take(receiver, known, message):
                known.unusable, known.needs_key = problems, False
            if (known.policy, known.unusable) != before:
                self._notify(receiver)

    def _take(self, receiver: str, known: _KnownConfiguration, message: StoredMessage) -> tuple[str, ...]:
        """Take the policy of a revision, unless it has problems, which are returned."""
        read = self._read(receiver, message.data)
        if isinstance(read, Invalid):
            return read.problems
        policy, found = read
        # An equal policy stays the same object, since actors check by identity whether theirs is in force.
        known.policy = known.policy if policy == known.policy else policy
        known.unusable = self._reasons(receiver, policy, found.problems)
        known.needs_key = found.needs_key and len(known.unusable) == len(found.problems)
        if found.problems and self._keys():  # A process without a key file never gets a key.
            self._unopened[receiver] = message
        else:
            self._unopened.pop(receiver, None)
        return ()

    def _drop_policy(self, receiver: str, known: _KnownConfiguration) -> tuple[str, ...]:
        known.policy, known.unusable = None, ()
        self._unopened.pop(receiver, None)
        return ()

    def _created_at_after(self, receiver: str, message: StoredMessage, before: float) -> float:
        """When the receiver was created, as known after a revision; only our clients say it."""
        removal = self._removals.get(receiver)
        created = created_at(message) or max(before, removal.at if removal else 0.0)
        self._newest_created_at = max(self._newest_created_at, created)
        return created

    def _learn_removal(self, receiver: str, removal: Removal | None) -> bool:
        """Note a removal; returns True if it was not known."""
        known = self._removals.get(receiver)
        if removal is None or (known is not None and removal.revision <= known.revision):
            return False
        self._removals[receiver] = removal
        return True

    def _read(self, receiver: str, raw: bytes) -> tuple[Policy, OpenedMembers] | Invalid:
        """The policy, and what it was read from, some of whose secrets may still be sealed."""
        try:
            found = opened(self._keys(), receiver, bounded_members(raw))
            policy, warnings = parse_members(found.members, strict=False)
        except InvalidPolicy as error:
            log.log(self._log_level, "receiver.invalid", extra={"receiver": receiver, "why": str(error)})
            return Invalid(tuple(error.problems))
        if warnings:
            why = "; ".join(warnings)
            log.log(self._log_level, "receiver.doubtful", extra={"receiver": receiver, "why": why})
        if not policy.rates and self._default_rate is not None:
            policy = replace(policy, rates=(self._default_rate,))
        return policy, found

    def _reasons(self, receiver: str, policy: Policy, unopened: tuple[str, ...]) -> tuple[str, ...]:
        """The reasons why this node cannot send by the policy, which are logged."""
        reasons = unopened + self._unusable(receiver, policy)
        if reasons:
            why = "; ".join(reasons)
            log.log(self._log_level, "receiver.invalid", extra={"receiver": receiver, "why": why})
        return reasons

    def _forget(self, receiver: str, applied: int) -> None:
        """Forget a removed receiver as soon as no older revision can come."""
        known = self._known.get(receiver)
        if known is not None and not known.exists and known.revision <= applied:
            del self._known[receiver]

    def _notify(self, receiver: str) -> None:
        for listener in self._listeners:
            listener(receiver)


def receiver_finder(
    configurations: KnownConfigurations, subscriptions: Subscriptions
) -> Callable[[str, str, float], tuple[str, ...]]:
    """Makes a function that finds the receivers of an event from its tenant, type and storage time.

    A receiver gets no event from before it was created, even if it is routed late.
    """

    def match(tenant: str, event_type: str, stored_at: float) -> tuple[str, ...]:
        return configurations.existing_at(stored_at, subscriptions.match(tenant, event_type))

    return match


def subscriptions_of(configurations: KnownConfigurations) -> Subscriptions:
    """The subscriptions, kept up to date from now on; call this before `configurations` are started."""
    subscriptions = Subscriptions()

    def keep(receiver: str) -> None:
        policy = configurations.subscriber(receiver)
        subscriptions.put(receiver, policy.events if policy else ())

    configurations.on_change(keep)
    return subscriptions


def letter_marks_of(configurations: KnownConfigurations) -> Callable[[str], str]:
    """Makes a function that returns the mark of a receiver's transform in force, as dead letters have it."""

    def mark(receiver: str) -> str:
        policy = configurations.subscriber(receiver)
        if policy is None or policy.transform is None:
            return ""
        hashed = transform_hash(policy.transform, key_hash(policy.pseudonym_key))
        return f"{configurations.revision(receiver)} {hashed}"

    return mark
