"""Requests and their answers over one inbox: every request ends, with an answer or with a reason.

One subscription receives all answers; the last token of the subject names the request. One sweep enforces all
deadlines while requests are waiting, so a request costs one future and no timer.
"""

import asyncio
from collections.abc import Callable, Sequence

from streams.nats.answers import Forbidden, Put, Unanswered
from streams.nats.errors import Disconnected
from streams.nats.headers import STATUS
from streams.nats.wire import Message, Subscription, Wire

SWEEP_EVERY_S = 0.1
"""Interval of the sweep: a request ends at most this long after its deadline."""


class _Question:
    __slots__ = ("deadline", "future", "is_part", "parts", "subject")

    def __init__(
        self,
        subject: str,
        future: asyncio.Future[list[Message] | Unanswered],
        deadline: float,
        is_part: Callable[[Message], bool] | None,
    ) -> None:
        self.subject = subject
        self.future = future
        self.deadline = deadline
        self.is_part = is_part
        self.parts: list[Message] = []


class _Row:
    """Questions that are asked at once. The token of each is the row's and its place."""

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
        """Take the first answer of a question; the row ends with its last one."""
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
        self._questions: dict[str, _Question] = {}
        self._rows: dict[str, _Row] = {}
        self._asked = 0
        self._prefix = ""
        self._subscription: Subscription | None = None
        self._deaf: Forbidden | None = None
        self.on_forbidden: Callable[[Forbidden], None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._prefix = self._wire.new_inbox() + "."
        self._wire.on_refusal(self._refused)
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
        self, subject: str, data: bytes, headers: dict[str, str] | None, timeout_s: float
    ) -> Message | Unanswered:
        """Send a request; returns the first answer, or why there is none."""
        answer = await self.ask_parts(subject, data, headers, timeout_s, None)
        return answer if isinstance(answer, Unanswered) else _heard(answer[0], subject)

    async def ask_all(self, puts: Sequence[Put], timeout_s: float) -> list[Message | Unanswered]:
        """Ask all at once, in one piece; returns the first answer to each, or why there is none."""
        if (why := self._closed()) is not None:
            return [why] * len(puts)
        self._asked += 1
        token, subjects = str(self._asked), [put.subject for put in puts]
        row = _Row(subjects, self._loop.create_future(), self._loop.time() + timeout_s)
        self._rows[token] = row
        if self._sweeper is None:
            self._sweep_later()
        try:
            self._wire.send(puts, [f"{self._prefix}{token}-{place}" for place in range(len(puts))])
            answers = await row.future
        except Disconnected as error:
            return [Unanswered(str(error))] * len(puts)
        finally:
            del self._rows[token]
        return [
            each if isinstance(each, Unanswered) else _heard(each, subject)
            for subject, each in zip(subjects, answers, strict=True)
        ]

    async def ask_parts(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None,
        timeout_s: float,
        is_part: Callable[[Message], bool] | None,
    ) -> list[Message] | Unanswered:
        """Send a request; returns all answers up to and including the first that ends the page."""
        if (why := self._closed()) is not None:
            return why
        self._asked += 1
        token = str(self._asked)
        question = _Question(subject, self._loop.create_future(), self._loop.time() + timeout_s, is_part)
        self._questions[token] = question
        if self._sweeper is None:
            self._sweep_later()
        try:
            await self._wire.publish(subject, data, self._prefix + token, headers)
        except Disconnected as error:
            del self._questions[token]
            return Unanswered(str(error))
        return await question.future

    def _closed(self) -> Unanswered | None:
        """Why nothing can be asked at the moment."""
        if self._subscription is None:
            return Unanswered("stopped")
        if not self._wire.connected:
            return Unanswered("not connected to NATS")
        return self._deaf

    def _on_message(self, message: Message) -> None:
        token = message.subject[len(self._prefix) :]
        question = self._questions.get(token)
        if question is None:
            self._in_row(token, message)
            return
        question.parts.append(message)
        if question.is_part is None or not question.is_part(message):
            del self._questions[token]
            self._end(question, question.parts)

    def _in_row(self, token: str, message: Message) -> None:
        name, _, place = token.partition("-")
        row = self._rows.get(name)
        if row is not None and place.isdecimal() and int(place) < len(row.answers):
            row.answer(int(place), message)

    def _sweep_later(self) -> None:
        self._sweeper = self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        late = [token for token, question in self._questions.items() if question.deadline <= now]
        self._end_each(late, Unanswered("no answer in time"))
        for row in self._rows.values():
            if row.deadline <= now:
                row.end(Unanswered("no answer in time"))
        self._sweeper = None
        if self._questions or self._rows:
            self._sweep_later()

    def end_all(self, why: str) -> None:
        """End every open request. The next connection may have other permissions."""
        self._deaf = None
        self._end_everything(Unanswered(why))

    def _refused(self, subject: str) -> None:
        """End the requests that get no answer because they, or their inbox, are not permitted."""
        if subject == f"{self._prefix}*".lower():
            self._deaf = Forbidden(_forbidden("subscribe", f"{self._prefix}*"))
            self._end_everything(self._deaf)
            self._tell_forbidden(self._deaf)
            return
        asked = [token for token, each in self._questions.items() if each.subject.lower() == subject]
        in_rows = [
            (row, place)
            for row in self._rows.values()
            for place, each in enumerate(row.subjects)
            if each.lower() == subject
        ]
        if asked or in_rows:
            named = self._questions[asked[0]].subject if asked else in_rows[0][0].subjects[in_rows[0][1]]
            told = Forbidden(_forbidden("publish", named))
            self._end_each(asked, told)
            for row, place in in_rows:
                row.answer(place, told)
            self._tell_forbidden(told)

    def _tell_forbidden(self, answer: Forbidden) -> None:
        if self.on_forbidden is not None:
            self.on_forbidden(answer)

    def _end_everything(self, answer: Unanswered) -> None:
        self._end_each(list(self._questions), answer)
        for row in self._rows.values():
            row.end(answer)

    def _end_each(self, tokens: list[str], answer: Unanswered) -> None:
        for token in tokens:
            self._end(self._questions.pop(token), answer)

    @staticmethod
    def _end(question: _Question, answer: list[Message] | Unanswered) -> None:
        # It is done already if the caller was cancelled.
        if not question.future.done():
            question.future.set_result(answer)


def _heard(message: Message, subject: str) -> Message | Unanswered:
    """The answer, unless the server says that there will be none."""
    if message.headers is not None and not message.data and message.headers.get(STATUS) == "503":
        return Unanswered(f"nothing answers on {subject}")
    return message


def _forbidden(verb: str, subject: str) -> str:
    return (
        f"NATS does not permit this user to {verb} to {subject}: use another user, or permit it as "
        "deploy/nats-permissions.conf shows"
    )
