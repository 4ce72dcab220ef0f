"""The receivers' configurations as they are stored: read from the leader of their bucket, put, and removed.

Each configuration says in its headers when its receiver was created, and which removal came before it, so no
removal is missed, even if the receiver is put again at once. Its trail has the earlier changes.

Secrets are sealed when a configuration is stored, and opened when it is read, if there are keys: nothing
above this module sees a sealed text that its keys can open. Without keys, sealed texts are passed on, and
stored as they are.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from actors.configuration.parsing import parse
from actors.errors import InvalidPolicy, Unavailable
from actors.ids import split_receiver
from actors.ports import Absent, Invalid, Removal
from streams.bounded_gather import in_turns, sorted_in_turns
from streams.buckets.change_trail import trail_after
from streams.buckets.follower import is_removal
from streams.buckets.sealed_documents import NO_KEY, SealedDocument, members_in, sealed_document
from streams.buckets.sealing_marker import is_sealing
from streams.buckets.without_secrets import fingerprints_header
from streams.installation.topology import Names
from streams.nats.answers import Answer, Forbidden, Refused, Stored, StoredMessage, Unanswered
from streams.nats.errors import ApiError, NotPermitted
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import (
    CHANGED_BY,
    EXPECTED,
    FINGERPRINTS,
    KV_OPERATION,
    REMOVED,
    ROLLUP,
    SINCE,
    SINCE_ITSELF,
    WRONG_LAST_SEQUENCE,
)
from streams.sealing.documents import keys_used, opened
from streams.sealing.keys import Keys, no_keys

LIST_MESSAGES_MAX = 256
"""Messages of one read of many: their decoding makes others wait."""
NEWEST_ONLY = {ROLLUP: "sub"}
"""Header that drops the key's older values: a valid one does not need them, and they may hold old secrets."""


Resealed = Literal["sealed", "sealed already", "nothing to seal"]
"""The result of sealing a configuration again."""


class Configuration(Struct, frozen=True):
    """A configuration from the bucket; `revision` is the one that a conditional put expects.

    - `raw`: with opened secrets. Those that cannot be opened are sealed in it.
    - `unopened`: why these cannot be opened; empty also if there is no key at all.
    """

    raw: bytes
    revision: int
    unopened: tuple[str, ...] = ()


class Unopened(Struct, frozen=True):
    """The reasons why secrets of a configuration cannot be opened, each with its place."""

    problems: tuple[str, ...]


class KeysUsed(Struct, frozen=True):
    """The keys that sealed the secrets of a configuration, and why some cannot be opened.

    - `keys`: their ids; `UNENCRYPTED` for secrets that are not sealed.
    - `unopened`: empty also if there is no key at all.
    """

    keys: frozenset[str]
    unopened: tuple[str, ...]


class StoredConfigurations:
    """The configurations of all receivers in their bucket; `by` names who changes them, for the record.

    - `keys`: returns the keys of now; their file may have changed.
    """

    def __init__(self, js: JetStream, names: Names, by: str = "", keys: Callable[[], Keys] = no_keys) -> None:
        self._js = js
        self._stream = names.receivers
        self._names = names
        self._by = by
        self._keys = keys

    async def get(self, receiver: str) -> Configuration | None:
        """Read the configuration from the bucket's leader. Raises `Unavailable`."""
        message = await self.last(receiver)
        if message is None or is_removal(message):
            return None
        return self._opened(receiver, message)

    def _opened(self, receiver: str, message: StoredMessage) -> Configuration:
        if not (keys := self._keys()):
            return Configuration(message.data, message.position)
        members = members_in(message)
        found = opened(keys, receiver, members)
        raw = message.data if found.members == members else msgspec.json.encode(found.members)
        return Configuration(raw, message.position, found.problems)

    async def put(self, receiver: str, raw: bytes, revision: int | None = None) -> Answer:
        """Store a configuration; if `revision` is given, only if it replaces that one (0: none).

        Raises InvalidName, and InvalidPolicy with a sentence for each field, unknown ones included. New
        secrets are refused if the installation seals them and there is no key here.
        """
        split_receiver(receiver)
        parse(raw, strict=True)
        return await self._store(receiver, raw, revision, self._by)

    async def delete(self, receiver: str, revision: int | None = None) -> Answer:
        """Remove the configuration; if `revision` is given, only that one. Raises InvalidName."""
        split_receiver(receiver)
        try:
            values = await self._values(receiver, await self.last(receiver))
        except Unavailable as error:
            return Unanswered(str(error))
        headers = NEWEST_ONLY | {KV_OPERATION: "PURGE"} | _changed_by(self._by) | trail_after(values, None)
        if revision is not None:
            headers |= {EXPECTED: str(revision)}
        return await self._js.publish(self._names.receiver(receiver), b"", headers)

    async def keys(self) -> list[str]:
        """All existing receivers in alphabetical order. Raises `Unavailable`."""
        return list(await self.all())

    async def all(self, tenant: str = "*") -> dict[str, Configuration]:
        """Read the configurations of all receivers, or of one tenant's, in alphabetical order.

        Raises `Unavailable`.
        """
        messages = await self._all_messages(tenant)
        return {name: self._opened(name, each) async for name, each in in_turns(messages.items())}

    async def key_uses(self) -> dict[str, KeysUsed]:
        """The keys that sealed the secrets of each receiver, in alphabetical order. Raises `Unavailable`."""
        found = dict[str, KeysUsed]()
        for name, message in (await self._all_messages("*")).items():
            used = frozenset(keys_used(members_in(message)))
            found[name] = KeysUsed(used, self._opened(name, message).unopened)
        return found

    async def _all_messages(self, tenant: str) -> dict[str, StoredMessage]:
        there: dict[str, StoredMessage] = {}
        after, pending = 0, 1
        while pending:
            page = await self._js.read(
                self._stream, self._names.receiver(f"{tenant}.>"), after + 1, LIST_MESSAGES_MAX
            )
            async for message in in_turns(page.messages):
                receiver, after = self._names.receiver_of_configuration(message.subject), message.position
                there.pop(receiver, None)
                if not is_removal(message):
                    there[receiver] = message
            pending = page.pending
        return {name: there[name] for name in await sorted_in_turns([*there])}

    async def names(self, tenant: str) -> list[str]:
        """The receivers of a tenant, and removed ones that the bucket still remembers, in alphabetical order.

        Raises `Unavailable`.
        """
        try:
            subjects = await self._js.subjects(self._stream, self._names.receiver(f"{tenant}.*"))
        except ApiError as error:
            raise Unavailable(f"cannot read {self._stream}: {error}") from error
        return sorted(map(self._names.receiver_of_configuration, subjects))

    async def get_many(self, receivers: Sequence[str]) -> dict[str, Configuration]:
        """Read the configurations of those receivers that exist, in that order. Raises `Unavailable`."""
        page = await self._js.last_of(self._stream, [*map(self._names.receiver, receivers)])
        found = {self._names.receiver_of_configuration(each.subject): each for each in page.messages}
        there = [(each, found[each]) for each in receivers if each in found and not is_removal(found[each])]
        return {name: self._opened(name, message) for name, message in there}

    async def set_paused(self, receiver: str, paused: bool, by: str = "") -> Absent | Invalid | None:
        """Change the member `paused` only, for `by`; all others stay, even unknown ones.

        Returns None once it is so, or why it cannot be. Raises `Unavailable`.
        """
        while (found := await self.get(receiver)) is not None:
            try:
                policy, _ = parse(found.raw, strict=False)
                if policy.paused is paused:
                    return None
                raw = msgspec.json.encode(msgspec.json.decode(found.raw) | {"paused": paused})
                answer = await self._store(receiver, raw, found.revision, by)
            except InvalidPolicy as error:  # Or too large with sealed secrets.
                return Invalid(tuple(error.problems))
            match answer:
                case Refused(code, _) if code == WRONG_LAST_SEQUENCE:
                    continue
                case Refused(code, text):
                    raise Unavailable(f"cannot edit {receiver}: {text} (JetStream error {code})")
                case Unanswered(why):
                    raise Unavailable(f"cannot edit {receiver}: {why}")
            return None
        return Absent()

    async def last(self, receiver: str) -> StoredMessage | None:
        """The newest revision, from the leader: a configuration or a removal. Raises `Unavailable`."""
        try:
            return await self._js.last_message(self._stream, self._names.receiver(receiver))
        except ApiError as error:
            raise Unavailable(f"cannot ask for {receiver}: {error}") from error

    async def _store(self, receiver: str, raw: bytes, revision: int | None, by: str) -> Answer:
        """Store a value with headers that mention what it drops: the last removal, and who changed what."""
        while True:
            try:
                last = await self.last(receiver)
                values = await self._values(receiver, last)
            except Unavailable as error:
                return Unanswered(str(error))
            if revision and last is not None and last.position > revision:
                return Refused(WRONG_LAST_SEQUENCE, f"wrong last sequence: {last.position}")
            expected = revision
            if revision is None or (revision == 0 and last is not None and is_removal(last)):
                expected = last.position if last else 0
            try:
                document = await self._sealed(receiver, raw, last)
            except Unavailable as error:
                return Unanswered(str(error))
            headers = NEWEST_ONLY | {EXPECTED: str(expected)} | _changed_by(by) | created_header(last)
            headers |= trail_after(values, document.raw, document.fingerprints)
            if document.fingerprints:
                headers[FINGERPRINTS] = fingerprints_header(document.fingerprints)
            if (removal := _removal_among(values)) is not None:
                headers |= {REMOVED: f"{removal.revision} {removal.at:.6f}"}
            answer = await self._js.publish(self._names.receiver(receiver), document.raw, headers)
            taken = isinstance(answer, Refused) and answer.code == WRONG_LAST_SEQUENCE
            if revision is not None or not taken:
                return answer

    async def _sealed(self, receiver: str, raw: bytes, last: StoredMessage | None) -> SealedDocument:
        """The configuration as it is stored after `last`. Raises InvalidPolicy, and `Unavailable`."""
        found = sealed_document(self._keys(), receiver, raw, last)
        if found.unencrypted and await is_sealing(self._js, self._names):
            raise InvalidPolicy([f"{place}: {NO_KEY}" for place in found.unencrypted])
        if found.problems:
            raise InvalidPolicy([*found.problems])
        return found

    async def seal_again(self, receiver: str) -> Resealed | Unopened | Invalid:
        """Seal all secrets with the present key; a change at the same moment wins. Raises `Unavailable`."""
        while True:
            last = await self.last(receiver)
            if last is None or is_removal(last) or not (used := keys_used(members_in(last))):
                return "nothing to seal"
            found = self._opened(receiver, last)
            if found.unopened:
                return Unopened(found.unopened)
            if set(used) == {self._keys().present}:
                return "sealed already"
            try:
                parse(found.raw, strict=False)
                answer = await self._store(receiver, found.raw, last.position, self._by)
            except InvalidPolicy as error:
                # It is too large with sealed secrets; or storing it would drop the last valid one, which is
                # in force.
                return Invalid(tuple(error.problems))
            match answer:
                case Stored():
                    return "sealed"
                case Refused(code, _) if code == WRONG_LAST_SEQUENCE:
                    continue
                case Forbidden(why):
                    raise NotPermitted(why, final=True)
                case Refused(code, text):
                    raise Unavailable(f"cannot seal {receiver}: {text} (JetStream error {code})")
                case Unanswered(why):
                    raise Unavailable(f"cannot seal {receiver}: {why}")

    async def removal_before(self, receiver: str, newest: StoredMessage | None) -> Removal | None:
        """The last removal before the newest revision: from its header, or else from its history.

        Raises `Unavailable`.
        """
        return _removal_among(await self._values(receiver, newest))

    async def _values(self, receiver: str, newest: StoredMessage | None) -> list[StoredMessage]:
        """The values up to the newest, the oldest first; the newest alone if it mentions a removal."""
        if newest is None:
            return []
        values: list[StoredMessage] = []
        if removal_in(newest) is None:
            older = await self._at(receiver, 1)
            while older is not None and older.position < newest.position:
                values.append(older)
                older = await self._at(receiver, older.position + 1)
        return [*values, newest]

    async def _at(self, receiver: str, revision: int) -> StoredMessage | None:
        try:
            return await self._js.next_message(self._stream, self._names.receiver(receiver), revision)
        except ApiError as error:
            raise Unavailable(f"cannot ask for {receiver}: {error}") from error

    async def removal_before_present(self, receiver: str) -> int | None:
        """The revision of the last removal before the current configuration; 0 if it was never removed.

        Another answer than before means another receiver of that name. None if there is no configuration.
        Asks the leader; raises `Unavailable`.
        """
        newest = await self.last(receiver)
        if newest is None or is_removal(newest):
            return None
        removal = await self.removal_before(receiver, newest)
        return removal.revision if removal else 0

    async def end(self) -> int:
        """The revision of the newest change to any configuration, from the leader. Raises `Unavailable`."""
        try:
            return (await self._js.existing_stream(self._stream)).last
        except ApiError as error:
            raise Unavailable(f"cannot ask for {self._stream}: {error}") from error

    async def last_removal(self, receiver: str) -> Removal | None:
        """The last removal that the bucket knows, from its leader. Raises `Unavailable`."""
        return await self.removal_before(receiver, await self.last(receiver))


def _removal_among(values: Sequence[StoredMessage]) -> Removal | None:
    """The last removal that these values mention."""
    return next(filter(None, map(removal_in, reversed(values))), None)


def removal_in(message: StoredMessage) -> Removal | None:
    """The last removal that this revision mentions by itself."""
    if is_removal(message):
        return Removal(message.position, message.stored_at)
    revision, _, at = message.headers.get(REMOVED, "").partition(" ")
    try:
        return Removal(int(revision), float(at))
    except ValueError:
        return None


def created_at(message: StoredMessage) -> float:
    """When the receiver was created, as the configuration says; 0.0 if it does not say it."""
    said = message.headers.get(SINCE, "")
    if said == SINCE_ITSELF:
        return message.stored_at
    try:
        return float(said)
    except ValueError:
        return 0.0


def created_header(last: StoredMessage | None) -> dict[str, str]:
    """The header of a configuration that is stored after that revision: when the receiver was created."""
    if last is None or is_removal(last):
        return {SINCE: SINCE_ITSELF}
    created = created_at(last)
    return {SINCE: f"{created:.6f}"} if created else {}


def _changed_by(by: str) -> dict[str, str]:
    return {CHANGED_BY: by} if by else {}
