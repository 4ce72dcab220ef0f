"""The receivers' configurations: a bucket that is followed; the valid ones in force are kept.

Every operator can put anything into the bucket with the nats CLI. What cannot be used is reported and leaves
the last valid configuration in force; the bucket keeps some revisions of each key, so that a node that has
just started finds that one, too. Two readers feed what is known here: the follower, in the order of the
bucket, and `confirm`, which asks the leader and may be ahead of it. Therefore every receiver remembers up to
which revision it was told what, and older news change nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import InvalidPolicy, Unavailable
from actors.ids import split_receiver
from actors.policy import Policy, Rate, parse
from actors.ports import Absent, Invalid, Removal
from actors.subscriptions import Subscriptions
from streams.installation.topology import Names
from streams.nats.answers import Answer, Refused, StoredMessage, Unanswered
from streams.nats.codes import WRONG_LAST_SEQUENCE
from streams.nats.errors import ApiError
from streams.nats.follow import Follower
from streams.nats.headers import EXPECTED, KV_OPERATION, MARKER_REASON, REMOVED, ROLLUP
from streams.nats.jetstream import JetStream
from streams.reading.messages import RECEIVER_LOOKED_AT_MAX, receiver_problem

log = logging.getLogger(__name__)

NEWEST_ONLY = {ROLLUP: "sub"}
"""Drops the older values of the key: what is known to be valid needs none, and they may hold old secrets."""


class Configuration(Struct, frozen=True):
    """A configuration as it lies in the bucket; `revision` is what a conditional put expects."""

    raw: bytes
    revision: int


class _Known(Struct):
    """One receiver, as far as it is known.

    `revision` is the newest seen and `exists` what it said; `problems` are its, if it is invalid. `policy` is
    that of the newest that could be used (`policy_revision`), which may be an older one.
    """

    revision: int = 0
    exists: bool = False
    problems: tuple[str, ...] = ()
    policy: Policy | None = None
    policy_revision: int = 0


class Receivers:
    """Implements `actors.ports.Policies`. Without `start` nothing is followed; awaited methods still work."""

    def __init__(self, js: JetStream, names: Names, default_rate: Rate | None = None) -> None:
        self._js = js
        self._stream = names.receivers
        self._prefix = names.receiver("")
        self._default_rate = default_rate
        self._known: dict[str, _Known] = {}
        self._removals: dict[str, Removal] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._asking: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._follower = Follower(js, self._stream, f"{self._prefix}>", self._follow)

    async def start(self) -> None:
        """Return when all configurations that there are have been read."""
        await self._follower.start()

    async def stop(self) -> None:
        for task in filter(None, (self._asking, self._next)):
            task.cancel()
        await self._follower.stop()

    async def catch_up(self) -> None:
        """Return when all is known that the leader of the bucket knows by now. Raises `Unavailable`.

        One question serves all who ask before it is put; who comes while one is under way waits for the next.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(self._catch_up(self._asking))
        await asyncio.shield(self._next)

    async def _catch_up(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._asking, self._next = self._next, None
        try:
            await self._follower.catch_up()
        except ApiError as error:
            raise Unavailable(f"cannot read {self._stream}: {error}") from error

    async def read_again(self) -> None:
        """Read a recreated bucket, with its own revisions; what is known holds until it says otherwise."""
        self._removals.clear()
        for known in self._known.values():
            known.revision = known.policy_revision = 0
        await self._follower.start_over()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a receiver whenever what is known of it has changed. It must not raise."""
        self._listeners.append(listener)

    def policy(self, receiver: str) -> Policy | None:
        """The configuration in force: the last valid one, with the installation's default rate filled in."""
        known = self._known.get(receiver)
        return known.policy if known else None

    def known(self, receiver: str) -> bool:
        """True if there is a configuration, valid or not."""
        known = self._known.get(receiver)
        return known is not None and known.exists

    def heard_of(self, receiver: str) -> bool:
        """True if there is a configuration, valid or not, or one was removed."""
        return receiver in self._known or receiver in self._removals

    def problems(self, receiver: str) -> tuple[str, ...]:
        """Why the newest configuration is not in force, one sentence a field; nothing if it is."""
        known = self._known.get(receiver)
        return known.problems if known else ()

    def removal(self, receiver: str) -> Removal | None:
        """The last removal that is known of, from the bucket itself or from what was put since."""
        return self._removals.get(receiver)

    async def confirm(self, receiver: str) -> Policy | Absent | Invalid:
        """Asks the leader of the bucket, and keeps its answer. Raises `Unavailable`."""
        before = self._known.get(receiver)
        revision = before.revision if before else 0
        message = await self._last(receiver)
        if message is not None:
            noted = False
            if message.sequence != revision:
                noted = self._note(receiver, await self._removal_before(receiver, message))
            self._learn(receiver, message, noted=noted)
        elif before and before.exists and before.revision == revision:
            # The key was wiped out together with its marker.
            before.exists, before.policy, before.problems = False, None, ()
            self._tell(receiver)
        known = self._known.get(receiver)
        self._forget(receiver, self._follower.applied)
        if known is None or not known.exists:
            return Absent()
        return known.policy or Invalid(known.problems)

    async def last_removal(self, receiver: str) -> Removal | None:
        """The last removal that the bucket knows of, from its leader. Raises `Unavailable`."""
        return await self._removal_before(receiver, await self._last(receiver))

    async def get(self, receiver: str) -> Configuration | None:
        """Reads the configuration from the bucket's leader. Raises `Unavailable`."""
        message = await self._last(receiver)
        if message is None or is_removal(message):
            return None
        return Configuration(message.data, message.sequence)

    async def put(self, receiver: str, raw: bytes, revision: int | None = None) -> Answer:
        """Store a configuration, if given only in the place of `revision` (0: of none).

        Raises InvalidName, and InvalidPolicy with a sentence for each field, unknown ones included.
        """
        split_receiver(receiver)
        parse(raw, strict=True)
        return await self._store(receiver, raw, revision)

    async def delete(self, receiver: str, revision: int | None = None) -> Answer:
        """Remove the configuration, if given only where it is that revision. Raises InvalidName."""
        split_receiver(receiver)
        headers = NEWEST_ONLY | {KV_OPERATION: "PURGE"}
        if revision is not None:
            headers |= {EXPECTED: str(revision)}
        return await self._js.publish(self._prefix + receiver, b"", headers)

    async def keys(self) -> list[str]:
        """All receivers that there are, in alphabetical order. Raises `Unavailable`."""
        return list(await self.all())

    async def all(self, tenant: str = "*") -> dict[str, Configuration]:
        """Reads the configurations of all receivers, or of a tenant's, in alphabetical order.

        Raises `Unavailable`.
        """
        there: dict[str, Configuration] = {}
        after, pending = 0, 1
        while pending:
            page = await self._js.read(self._stream, f"{self._prefix}{tenant}.>", after + 1)
            for message in page.messages:
                receiver, after = message.subject.removeprefix(self._prefix), message.sequence
                there.pop(receiver, None)
                if not is_removal(message):
                    there[receiver] = Configuration(message.data, message.sequence)
            pending = page.pending
        return dict(sorted(there.items()))

    async def names(self, tenant: str) -> list[str]:
        """The receivers of a tenant, and removed ones that the bucket remembers, in alphabetical order.

        Raises `Unavailable`.
        """
        try:
            subjects = await self._js.subjects(self._stream, f"{self._prefix}{tenant}.*")
        except ApiError as error:
            raise Unavailable(f"cannot read {self._stream}: {error}") from error
        return sorted(each.removeprefix(self._prefix) for each in subjects)

    async def some(self, receivers: Sequence[str]) -> dict[str, Configuration]:
        """Reads the configurations of those of them that there are, in that order. Raises `Unavailable`."""
        page = await self._js.last_of(self._stream, [self._prefix + each for each in receivers])
        found = {each.subject.removeprefix(self._prefix): each for each in page.messages}
        there = [(each, found[each]) for each in receivers if each in found and not is_removal(found[each])]
        return {name: Configuration(message.data, message.sequence) for name, message in there}

    async def set_paused(self, receiver: str, paused: bool) -> Policy | Absent | Invalid:
        """Edit the one member `paused`; the others, unknown ones included, stay. Raises `Unavailable`."""
        while (found := await self.get(receiver)) is not None:
            try:
                policy, _ = parse(found.raw, strict=False)
            except InvalidPolicy as error:
                return Invalid(tuple(error.problems))
            if policy.paused is not paused:
                raw = msgspec.json.encode(msgspec.json.decode(found.raw) | {"paused": paused})
                match await self._store(receiver, raw, found.revision):
                    case Refused(code, _) if code == WRONG_LAST_SEQUENCE:
                        continue
                    case Refused(code, text):
                        raise Unavailable(f"cannot edit {receiver}: {text} (JetStream error {code})")
                    case Unanswered(why):
                        raise Unavailable(f"cannot edit {receiver}: {why}")
            return await self.confirm(receiver)
        return Absent()

    async def _last(self, receiver: str) -> StoredMessage | None:
        try:
            return await self._js.last_message(self._stream, self._prefix + receiver)
        except ApiError as error:
            raise Unavailable(f"cannot ask for {receiver}: {error}") from error

    async def _store(self, receiver: str, raw: bytes, revision: int | None) -> Answer:
        """Headers of a put that replaces the stored value, so that its removal is not overlooked."""
        while True:
            try:
                last = await self._last(receiver)
                removal = await self._removal_before(receiver, last)
            except Unavailable as error:
                return Unanswered(str(error))
            expected = revision
            if revision is None or (revision == 0 and last is not None and is_removal(last)):
                expected = last.sequence if last else 0
            headers = NEWEST_ONLY | {EXPECTED: str(expected)}
            if removal is not None:
                headers |= {REMOVED: f"{removal.revision} {removal.at:.6f}"}
            answer = await self._js.publish(self._prefix + receiver, raw, headers)
            taken = isinstance(answer, Refused) and answer.code == WRONG_LAST_SEQUENCE
            if revision is not None or not taken:
                return answer

    async def _removal_before(self, receiver: str, newest: StoredMessage | None) -> Removal | None:
        """The last removal that the newest revision knows of: by its own word, else by its history."""
        if newest is None:
            return None
        if (found := _removal_told(newest)) is not None:
            return found
        older = await self._at(receiver, 1)
        while older is not None and older.sequence < newest.sequence:
            found = _removal_told(older) or found
            older = await self._at(receiver, older.sequence + 1)
        return found

    async def _at(self, receiver: str, revision: int) -> StoredMessage | None:
        try:
            return await self._js.next_message(self._stream, self._prefix + receiver, revision)
        except ApiError as error:
            raise Unavailable(f"cannot ask for {receiver}: {error}") from error

    def _follow(self, message: StoredMessage) -> None:
        receiver = message.subject.removeprefix(self._prefix)
        problem = receiver_problem(receiver[:RECEIVER_LOOKED_AT_MAX])
        if problem:
            log.warning("receiver.misnamed", extra={"key": receiver[:160], "why": problem})
            return
        self._learn(receiver, message)
        self._forget(receiver, message.sequence)

    def _learn(self, receiver: str, message: StoredMessage, *, noted: bool = False) -> None:
        """Take what a revision says, as far as nothing newer is known; `noted`: a removal is news."""
        changed = self._note(receiver, _removal_told(message)) or noted
        known = self._known.setdefault(receiver, _Known())
        revision = message.sequence
        if revision <= known.policy_revision or revision == known.revision:
            if changed:
                self._tell(receiver)
            return
        before = (known.exists, known.policy, known.problems)
        exists = not is_removal(message)
        policy, problems = self._read(receiver, message.data) if exists else (None, ())
        if not problems:
            known.policy_revision = revision
            # An equal one is the same to those who look whether theirs is still the one in force.
            known.policy = known.policy if policy == known.policy else policy
        if revision > known.revision:
            known.revision, known.exists, known.problems = revision, exists, problems
        if changed or (known.exists, known.policy, known.problems) != before:
            self._tell(receiver)

    def _note(self, receiver: str, removal: Removal | None) -> bool:
        """True if that removal was not known."""
        known = self._removals.get(receiver)
        if removal is None or (known is not None and removal.revision <= known.revision):
            return False
        self._removals[receiver] = removal
        return True

    def _read(self, receiver: str, raw: bytes) -> tuple[Policy | None, tuple[str, ...]]:
        """The policy, or what is wrong with it."""
        try:
            policy, warnings = parse(raw, strict=False)
        except InvalidPolicy as error:
            log.warning("receiver.invalid", extra={"receiver": receiver, "why": str(error)})
            return None, tuple(error.problems)
        if warnings:
            log.warning("receiver.doubtful", extra={"receiver": receiver, "why": "; ".join(warnings)})
        if policy.rate is None and self._default_rate is not None:
            policy = replace(policy, rate=self._default_rate)
        return policy, ()

    def _forget(self, receiver: str, applied: int) -> None:
        """Forget a removed receiver, once no older revision can come."""
        known = self._known.get(receiver)
        if known is not None and not known.exists and known.revision <= applied:
            del self._known[receiver]

    def _tell(self, receiver: str) -> None:
        for listener in self._listeners:
            listener(receiver)


def subscriptions_of(receivers: Receivers) -> Subscriptions:
    """Keeps the subscriptions from now on; call it before `receivers` are started."""
    subscriptions = Subscriptions()

    def keep(receiver: str) -> None:
        policy = receivers.policy(receiver)
        subscriptions.put(receiver, policy.events if policy else ())

    receivers.on_change(keep)
    return subscriptions


def _removal_told(message: StoredMessage) -> Removal | None:
    """The last removal, as far as this revision tells by itself."""
    if is_removal(message):
        return Removal(message.sequence, message.stored_at)
    revision, _, at = message.headers.get(REMOVED, "").partition(" ")
    try:
        return Removal(int(revision), float(at))
    except ValueError:
        return None


def is_removal(message: StoredMessage) -> bool:
    """A deletion or purge of the key, or the marker that the server leaves where a value expired."""
    return message.headers.get(KV_OPERATION) in ("DEL", "PURGE") or MARKER_REASON in message.headers
