"""Requests and their answers over one inbox: every request ends, with an answer or with a reason.

One subscription receives all answers; the last token of the subject names the request. One sweep enforces all
deadlines while requests are waiting, so a request costs no timer.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from streams.nats.answers import Forbidden, NoResponders, Put, Unanswered
from streams.nats.errors import Disconnected
from streams.nats.wire import Message, Subscription, Wire
from streams.nats.wire_names import STATUS

SWEEP_EVERY_S = 0.1
"""Interval of the sweep: a request ends at most this long after its deadline."""
AGAIN_AFTER_S = 1.0
"""Time after which a request that may be repeated is sent again, and again after twice as long.

Without this, a request during the election of a leader would wait for its deadline, long after the election.
"""


class _Request:
    """A request that has no answer yet.

    - `answered`: called once, with all parts of the answer, or the reason why there is none.
    - `again_at`: when it is sent once more; None if it may not be.
    """

    __slots__ = ("again_at", "answered", "asked_at", "deadline", "is_part", "parts", "put")

    def __init__(
        self,
        put: Put,
        answered: Callable[[list[Message] | Unanswered], None],
        asked_at: float,
        timeout_s: float,
        is_part: Callable[[Message], bool] | None,
    ) -> None:
        self.put = put
        self.answered = answered
        self.asked_at = asked_at
        self.deadline = asked_at + timeout_s
        self.is_part = is_part
        self.parts: list[Message] = []
        self.again_at: float | None = None


class _RequestGroup:
    """Questions that are asked at once. The token of each is the group's and its place."""

    __slots__ = ("answers", "deadline", "future", "left", "subjects")

    def __init__(
        self,
        subjects: list[str],
        future: asyncio.Future[list[Message | Unanswered]],
        deadline: float,
    ) -> None:
        self.subjects = subjects
        self.future = future
        self.deadline = deadline
        self.answers: list[Message | Unanswered | None] = [None] * len(subjects)
        self.left = len(subjects)

    def answer(self, place: int, answer: Message | Unanswered) -> None:
        """Take the first answer of a request; the group ends with its last one."""
        if self.answers[place] is None:
            self.answers[place] = answer
            self.left -= 1
            if not self.left and not self.future.done():
                self.future.set_result([each for each in self.answers if each is not None])

    def end(self, answer: Unanswered) -> None:
        """Answer whatever is open."""
        for place in range(len(self.answers)):
            self.answer(place, answer)


class Replies:
    """The requests of one `JetStream`. `on_forbidden` is called for those that our user may not send."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._requests: dict[str, _Request] = {}
        self._groups: dict[str, _RequestGroup] = {}
        self._request_count = 0
        self._prefix = ""
        self._subscription: Subscription | None = None
        self._deaf: Forbidden | None = None
        self.on_forbidden: Callable[[Forbidden], None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._prefix = self._wire.new_inbox() + "."
        self._wire.on_forbidden(self._refused)
        self._subscription = await self._wire.subscribe(self._prefix + "*", self._on_message)

    async def stop(self) -> None:
        """End the open requests; a request from now on ends at once."""
        subscription, self._subscription = self._subscription, None
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.end_all("stopped")
        if subscription is not None:
            await subscription.unsubscribe()

    async def ask(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None,
        timeout_s: float,
        *,
        repeat: bool = False,
    ) -> Message | Unanswered:
        """Send a request; returns the first answer, or why there is none.

        With `repeat`, it is sent again as long as there is none: it must do no more when it comes twice.
        """
        answer = await self.ask_parts(subject, data, headers, timeout_s, None, repeat=repeat)
        return answer if isinstance(answer, Unanswered) else _answer_in(answer[0], subject)

    async def ask_all(self, puts: Sequence[Put], timeout_s: float) -> list[Message | Unanswered]:
        """Ask all at once, in one piece; returns the first answer to each, or why there is none."""
        if (why := self._closed()) is not None:
            return [why] * len(puts)
        self._request_count += 1
        token, subjects = str(self._request_count), [put.subject for put in puts]
        group = _RequestGroup(subjects, self._loop.create_future(), self._loop.time() + timeout_s)
        self._groups[token] = group
        if self._sweeper is None:
            self._sweep_later()
        try:
            self._wire.send(puts, [f"{self._prefix}{token}-{place}" for place in range(len(puts))])
            answers = await group.future
        except Disconnected as error:
            return [Unanswered(str(error))] * len(puts)
        finally:
            del self._groups[token]
        return [
            each if isinstance(each, Unanswered) else _answer_in(each, subject)
            for subject, each in zip(subjects, answers, strict=True)
        ]

    async def ask_parts(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None,
        timeout_s: float,
        is_part: Callable[[Message], bool] | None,
        *,
        repeat: bool = False,
    ) -> list[Message] | Unanswered:
        """Send a request; returns all answers up to and including the first that ends the page."""
        if (why := self._closed()) is not None:
            return why
        future: asyncio.Future[list[Message] | Unanswered] = self._loop.create_future()
        put, now = Put(subject, data, headers), self._loop.time()
        request = _Request(put, partial(_settle, future), now, timeout_s, is_part)
        if repeat:
            request.again_at = now + AGAIN_AFTER_S
        token = self._expect(request)
        try:
            await self._wire.publish(subject, data, self._prefix + token, headers)
        except Disconnected as error:
            del self._requests[token]
            return Unanswered(str(error))
        return await future

    def begin(self, put: Put, timeout_s: float, answered: Callable[[Message | Unanswered], None]) -> None:
        """Send a request without waiting, as `Wire.send` does.

        `answered` is called once, with the first answer or the reason why there is none; that may be before
        this returns. It must neither block nor raise.
        """
        if (why := self._closed()) is not None:
            answered(why)
            return

        def end(parts: list[Message] | Unanswered) -> None:
            answered(parts if isinstance(parts, Unanswered) else _answer_in(parts[0], put.subject))

        token = self._expect(_Request(put, end, self._loop.time(), timeout_s, None))
        try:
            self._wire.send((put,), (self._prefix + token,))
        except Disconnected as error:
            del self._requests[token]
            answered(Unanswered(str(error)))

    def _expect(self, request: _Request) -> str:
        """Give the request a token, by which its answer is known."""
        self._request_count += 1
        token = str(self._request_count)
        self._requests[token] = request
        if self._sweeper is None:
            self._sweep_later()
        return token

    def _closed(self) -> Unanswered | None:
        """Why nothing can be asked at the moment."""
        if self._subscription is None:
            return Unanswered("stopped")
        if not self._wire.is_connected:
            return Unanswered("not connected to NATS")
        return self._deaf

    def _on_message(self, message: Message) -> None:
        token = message.subject[len(self._prefix) :]
        request = self._requests.get(token)
        if request is None:
            self._in_group(token, message)
            return
        request.parts.append(message)
        if request.is_part is None or not request.is_part(message):
            del self._requests[token]
            request.answered(request.parts)

    def _in_group(self, token: str, message: Message) -> None:
        name, _, place = token.partition("-")
        group = self._groups.get(name)
        if group is not None and place.isdecimal() and int(place) < len(group.answers):
            group.answer(int(place), message)

    def _sweep_later(self) -> None:
        self._sweeper = self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        late = [token for token, request in self._requests.items() if request.deadline <= now]
        self._end_each(late, Unanswered("no answer in time"))
        for group in self._groups.values():
            if group.deadline <= now:
                group.end(Unanswered("no answer in time"))
        self._ask_again(now)
        self._sweeper = None
        if self._requests or self._groups:
            self._sweep_later()

    def _ask_again(self, now: float) -> None:
        for token, request in self._requests.items():
            if request.again_at is not None and request.again_at <= now and self._wire.is_connected:
                request.again_at = now + 2 * (now - request.asked_at)
                self._wire.send((request.put,), (self._prefix + token,))

    def end_all(self, why: str) -> None:
        """End every open request. The next connection may have other permissions."""
        self._deaf = None
        self._end_everything(Unanswered(why))

    def _refused(self, subject: str) -> None:
        """End the requests that get no answer because they, or their inbox, are not permitted."""
        if subject == f"{self._prefix}*".lower():
            self._deaf = Forbidden(_forbidden("subscribe", f"{self._prefix}*"))
            self._end_everything(self._deaf)
            self._report_forbidden(self._deaf)
            return
        tokens = [token for token, each in self._requests.items() if each.put.subject.lower() == subject]
        in_groups = [
            (group, place)
            for group in self._groups.values()
            for place, each in enumerate(group.subjects)
            if each.lower() == subject
        ]
        if tokens or in_groups:
            group, place = in_groups[0] if in_groups else (None, 0)
            named = group.subjects[place] if group else self._requests[tokens[0]].put.subject
            refusal = Forbidden(_forbidden("publish", named))
            self._end_each(tokens, refusal)
            for group, place in in_groups:
                group.answer(place, refusal)
            self._report_forbidden(refusal)

    def _report_forbidden(self, answer: Forbidden) -> None:
        if self.on_forbidden is not None:
            self.on_forbidden(answer)

    def _end_everything(self, answer: Unanswered) -> None:
        self._end_each(list(self._requests), answer)
        for group in self._groups.values():
            group.end(answer)

    def _end_each(self, tokens: list[str], answer: Unanswered) -> None:
        for token in tokens:
            # An answer may begin the next request, or end others.
            if (request := self._requests.pop(token, None)) is not None:
                request.answered(answer)


def _settle(future: asyncio.Future[list[Message] | Unanswered], answer: list[Message] | Unanswered) -> None:
    # It is done already if the caller was cancelled.
    if not future.done():
        future.set_result(answer)


def _answer_in(message: Message, subject: str) -> Message | Unanswered:
    """The answer, unless the server says that there will be none."""
    return NoResponders(f"nothing answers on {subject}") if is_no_responders(message) else message


def is_no_responders(message: Message) -> bool:
    """True if the message is the server's, which says that nothing answers the request."""
    return message.headers is not None and not message.data and message.headers.get(STATUS) == "503"


def _forbidden(verb: str, subject: str) -> str:
    return (
        f"NATS does not permit this user to {verb} to {subject}: use another user, or permit it as "
        "deploy/nats/permissions.conf shows"
    )
