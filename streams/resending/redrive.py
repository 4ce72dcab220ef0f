"""Sends dead letters again: each exactly once, even if the command is interrupted.

A letter that is sent again is a new event for its receiver: it keeps its id and gets a new number. It has a
value of `angarium-again`, `dead-<number>`, with the number that it had when it was given up, and a message id
made from receiver, id, that value and the installation's nonce. So a copy that is sent twice is dropped, by
JetStream within its duplicate window and by the actor within its own. Beyond both, the plan makes sure that
nothing is sent twice (`streams.resending.redrive_lock`):

    begin   finish the plan of an interrupted redrive: letters that were sent are deleted, the others stay
    send    plan a page, without letters whose receiver does not exist or was removed since the beginning; ask
            the leader for its letters; send them; delete those that were stored
    end     release the lock

The letters of a receiver are sent one after the other, in their order.

JetStream compares message ids over a whole stream, and any producer may publish there: a producer that used
the id of a letter first would make JetStream drop the letter. So the id cannot be guessed, and if JetStream
says `duplicate`, the message that it already has is checked.
"""

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from actors.errors import Unavailable
from streams.buckets.follower import is_removal
from streams.buckets.stored_configurations import StoredConfigurations
from streams.dead_letters.letters import REQUESTS_MAX, DeadLetters, Letter
from streams.installation.topology import Names
from streams.nats.answers import Answer, Refused, Stored, StoredMessage, Unanswered
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_for_command
from streams.nats.wire_names import EVENT_AGAIN, EVENT_ID, MESSAGE_ID, UNREAD
from streams.resending.copies import TOO_LARGE_CODES, copied_headers, deliveries_info, pages_between
from streams.resending.redrive_lock import RedriveLock

GONE = "gone"
MALFORMED = "malformed"
REMOVED = "removed"
UNKNOWN_RECEIVER = "unknown_receiver"
ID_TAKEN = "taken"
TOO_LARGE = "too_large"
UNSURE = "unsure"


def again_value(letter: Letter) -> str:
    """The value of `angarium-again` when its event is sent again.

    A letter's message id ends in the event's number, or in its position if it has no number, so the value is
    the same for a letter that was buried twice.
    """
    number = letter.headers.get(MESSAGE_ID, "").rpartition(":")[2]
    return f"dead-{number or letter.position}"


def message_id(letter: Letter, nonce: str) -> str:
    """The message id under which it is sent again, always the same; older versions had no nonce."""
    known = f"{letter.receiver}:{letter.event_id}:{again_value(letter)}"
    return f"{known}:{nonce}" if nonce else known


def _headers_again(letter: Letter, nonce: str) -> dict[str, str]:
    """The headers under which it is sent again."""
    return copied_headers(letter.headers, again_value(letter), message_id(letter, nonce))


def _is_copy(message: StoredMessage, letter: Letter, nonce: str) -> bool:
    """True if a message of the deliveries is the letter, sent again."""
    ours = _headers_again(letter, nonce)
    named = (EVENT_ID, EVENT_AGAIN, MESSAGE_ID)
    return (
        message.subject.endswith(f".{letter.receiver}")
        and all(message.headers.get(name) == ours.get(name) for name in named)
        and message.data == letter.body
    )


def why_not_sendable(letter: Letter) -> str | None:
    """The reason why it cannot be sent again; None if it can."""
    if letter.is_body_gone:
        return GONE
    if UNREAD in letter.headers:  # Only letters of older versions; without their headers they have no id.
        return TOO_LARGE
    return MALFORMED if letter.problem else None


class Redriven(Struct):
    """The result of a redrive.

    - `redriven`: number of letters that were sent.
    - `finished`: positions of letters that an interrupted command had sent before.
    - `left_out`: positions of letters that stay, by reason: `gone` (there is no body), `malformed`,
      `too_large` (the stream accepts no event of this size, or its headers are too large), `unsure` (they
      may have been sent, but the copies would have been purged), `taken` (another publisher used their
      message id), `removed` (their receiver was removed since the redrive began), `unknown_receiver`
      (there is no such receiver, so they would become dead letters again at once).
    - `unknown_receivers`: these receivers.
    - `stopped`: why no more were sent; empty if all were.
    """

    redriven: int = 0
    finished: list[int] = field(default_factory=list)
    left_out: dict[str, list[int]] = field(default_factory=dict)
    unknown_receivers: set[str] = field(default_factory=set)
    stopped: str = ""


class Redrive:
    """The redrive of one command, under its lock. With `unsure_too`, unsure letters are sent, too.

    `receivers_end` is the newest change to any receiver when the letters were chosen: at its beginning, if it
    is not given. A receiver that is removed after that gets no letters, even if it is put
    again.
    Raises `LockHeld` if another redrive came, and `Unavailable` if NATS is away for long. If it is run again,
    it continues: letters that had been sent are not sent again.
    """

    def __init__(
        self, js: JetStream, names: Names, lock: RedriveLock, *, unsure_too: bool = False,
        receivers_end: int | None = None,
    ) -> None:  # fmt: skip
        self.done = Redriven()
        self._js = js
        self._names = names
        self._lock = lock
        self._letters = DeadLetters(js, names)
        self._configurations = StoredConfigurations(js, names)
        self._receivers_end = receivers_end
        self._sources = lock.sources(names.dead_letters)
        self._unsure_too = unsure_too
        self._unsure: set[int] = set()
        self._undecided = ""
        self._room = asyncio.Semaphore(REQUESTS_MAX)

    async def begin(self) -> None:
        """Finish the plan of an interrupted redrive."""
        if self._receivers_end is None:
            self._receivers_end = await retry_for_command(self._configurations.end)
        plan = self._lock.plan
        planned = await self._letters.letters(plan.letters)
        sent = await self._already_sent(planned, plan.stream_end)
        self._unsure = {letter.position for letter in await self._letters.letters(plan.unsure)}
        # This is checked after the search: a copy that was not found may have been purged meanwhile.
        if (await deliveries_info(self._js, self._names)).first > plan.stream_end + 1:
            self._unsure |= {letter.position for letter in planned}
        await self._letters.drop(each.mark for each in planned if each.position in sent)
        self.done.finished = sorted(sent)

    async def send(self, letters: Sequence[Letter]) -> None:
        """Send a page of at most some hundred letters, unless the redrive was stopped before."""
        possible = await self._with_receivers([each for each in letters if self._is_possible(each)])
        if not possible:
            return
        nonce = self._lock.plan.nonce or secrets.token_hex(16)
        await self._keep(
            stream_end=(await deliveries_info(self._js, self._names)).last, letters=possible, nonce=nonce
        )
        there = await self._read(possible)
        sent = await self._send(there)
        self.done.redriven += await self._letters.drop(each.mark for each in there if each.position in sent)
        if self._undecided:
            raise Unavailable(f"{self._undecided}; run it again to continue")

    async def end(self) -> None:
        """End the redrive, since everything that could be sent is sent."""
        await self._keep(letters=(), held=False)

    async def _keep(self, **changes: Any) -> None:
        await self._lock.store(unsure=tuple(sorted(self._unsure)), **changes)

    def _is_possible(self, letter: Letter) -> bool:
        why = why_not_sendable(letter)
        if why is None and letter.position in self._unsure and not self._unsure_too:
            why = UNSURE
        if why is not None:
            self._leave(letter, why)
        return why is None

    async def _with_receivers(self, letters: Sequence[Letter]) -> tuple[int, ...]:
        """The positions of those whose receiver exists, and was not removed since the beginning."""
        asked = dict.fromkeys(each.receiver for each in letters)
        whys = dict(zip(asked, await asyncio.gather(*map(self._why_not_to, asked)), strict=True))
        for letter in letters:
            if (why := whys[letter.receiver]) is not None:
                self._leave(letter, why)
        self.done.unknown_receivers.update(name for name, why in whys.items() if why == UNKNOWN_RECEIVER)
        return tuple(each.position for each in letters if whys[each.receiver] is None)

    async def _why_not_to(self, receiver: str) -> str | None:
        """The reason why nothing is sent to a receiver; None if it gets its letters."""
        async with self._room:
            newest = await retry_for_command(self._configurations.last, receiver)
            removal = await retry_for_command(self._configurations.removal_before, receiver, newest)
        if removal is not None and removal.revision > (self._receivers_end or 0):
            return REMOVED
        return UNKNOWN_RECEIVER if newest is None or is_removal(newest) else None

    def _leave(self, letter: Letter, why: str) -> None:
        self.done.left_out.setdefault(why, []).append(letter.position)

    # ---- sending

    async def _send(self, letters: Iterable[Letter]) -> set[int]:
        """Send the letters, several receivers at a time; returns those that are stored."""
        sent: set[int] = set()
        await asyncio.gather(*(self._send_lane(lane, sent) for lane in _by_receiver(letters).values()))
        return sent

    async def _send_lane(self, lane: list[Letter], sent: set[int]) -> None:
        for letter in lane:
            async with self._room:
                if self.done.stopped or self._undecided:
                    return
                match await self._publish(letter):
                    case None:
                        continue  # It was dropped or erased meanwhile.
                    case Stored(position=position, duplicate=True):
                        await self._judge_duplicate(letter, position, sent)
                    case Stored():
                        sent.add(letter.position)
                    case Refused(code=code) if code in TOO_LARGE_CODES:
                        self._leave(letter, TOO_LARGE)
                    case Refused(code, text):
                        self.done.stopped = (
                            f"the stream of deliveries accepts no more: {text} (JetStream error {code})"
                        )
                    case Unanswered(why):
                        self._undecided = f"letter {letter.position} was sent but not confirmed ({why})"

    async def _read(self, positions: Sequence[int]) -> list[Letter]:
        """The letters that exist at these positions, as of now."""
        asked_at = self._sources.now()
        letters = await self._letters.letters(positions)
        self._sources.remember((each.position for each in letters), asked_at)
        return letters

    async def _publish(self, letter: Letter) -> Answer | None:
        subject = self._names.publish_to(letter.receiver)
        headers = _headers_again(letter, self._lock.plan.nonce)
        return await self._lock.publish(subject, letter.body, headers, self._sources, letter.position)

    async def _judge_duplicate(self, letter: Letter, position: int, sent: set[int]) -> None:
        """Find out whose message has the letter's id: an earlier attempt's, or another publisher's."""
        message = await retry_for_command(self._js.message, self._names.deliveries, position)
        if message is None:
            self._unsure.add(letter.position)
            self._leave(letter, UNSURE)
        elif _is_copy(message, letter, self._lock.plan.nonce):
            sent.add(letter.position)
        else:
            self._leave(letter, ID_TAKEN)

    # ---- what an interrupted redrive has sent

    async def _already_sent(self, letters: Iterable[Letter], after: int) -> set[int]:
        """The letters among these that were sent, by their message ids after the position `after`."""
        sent: set[int] = set()
        end = (await deliveries_info(self._js, self._names)).last
        for receiver, lane in _by_receiver(letters).items():
            sent |= await self._found(receiver, lane, after, end)
        return sent

    async def _found(self, receiver: str, lane: list[Letter], after: int, end: int) -> set[int]:
        """Which of these letters are between two positions."""
        subject, nonce = self._names.deliveries_to(receiver), self._lock.plan.nonce
        by_id: dict[str, list[Letter]] = {}
        for letter in lane:
            by_id.setdefault(message_id(letter, nonce), []).append(letter)
        found: set[int] = set()
        async for page in pages_between(self._js, self._names, subject, after, end):
            for each in page:
                same = by_id.get(each.headers.get(MESSAGE_ID, ""), ())
                found |= {letter.position for letter in same if _is_copy(each, letter, nonce)}
            if len(found) == len(lane):
                break
        return found


def _by_receiver(letters: Iterable[Letter]) -> dict[str, list[Letter]]:
    lanes: dict[str, list[Letter]] = {}
    for letter in letters:
        lanes.setdefault(letter.receiver, []).append(letter)
    return lanes
