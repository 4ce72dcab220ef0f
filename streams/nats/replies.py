"""Questions and their answers over one inbox: every question ends, by an answer or by a stated reason.

One subscription takes all answers; the last token of the subject tells whose it is. Deadlines are held
by one sweep while anything is waiting, so that a question costs one future and no timer.
"""

import asyncio
from collections.abc import Callable

from streams.nats.answers import Forbidden, Unanswered
from streams.nats.errors import Disconnected
from streams.nats.headers import STATUS
from streams.nats.wire import Message, Subscription, Wire

SWEEP_EVERY_S = 0.1
"""Longest time after its deadline at which a question may end."""


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


class Replies:
    """The questions of one `JetStream`. `on_forbidden` hears what our user may not ask."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._questions: dict[str, _Question] = {}
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
        """End what is open; a question asked from now on ends at once."""
        subscription, self._subscription = self._subscription, None
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.end_all("stopped")
        if subscription is not None:
            await subscription.unsubscribe()

    async def ask(
        self, subject: str, data: bytes, headers: dict[str, str] | None, timeout_s: float
    ) -> Message | Unanswered:
        """The first answer, or why there is none."""
        answer = await self.ask_parts(subject, data, headers, timeout_s, None)
        if isinstance(answer, Unanswered):
            return answer
        message = answer[0]
        if message.headers is not None and not message.data and message.headers.get(STATUS) == "503":
            return Unanswered(f"nothing answers on {subject}")
        return message

    async def ask_parts(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None,
        timeout_s: float,
        is_part: Callable[[Message], bool] | None,
    ) -> list[Message] | Unanswered:
        """All answers up to and with the first that is no part of a longer one."""
        if self._subscription is None:
            return Unanswered("stopped")
        if not self._wire.connected:
            return Unanswered("not connected to NATS")
        if self._deaf is not None:
            return self._deaf
        self._asked += 1
        token = str(self._asked)
        question = _Question(subject, self._loop.create_future(), self._loop.time() + timeout_s, is_part)
        self._questions[token] = question
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_EVERY_S, self._sweep)
        try:
            await self._wire.publish(subject, data, self._prefix + token, headers)
        except Disconnected as error:
            del self._questions[token]
            return Unanswered(str(error))
        return await question.future

    def _on_message(self, message: Message) -> None:
        token = message.subject[len(self._prefix) :]
        question = self._questions.get(token)
        if question is None:
            return
        question.parts.append(message)
        if question.is_part is None or not question.is_part(message):
            del self._questions[token]
            self._end(question, question.parts)

    def _sweep(self) -> None:
        now = self._loop.time()
        late = [token for token, question in self._questions.items() if question.deadline <= now]
        self._end_each(late, Unanswered("no answer in time"))
        self._sweeper = self._loop.call_later(SWEEP_EVERY_S, self._sweep) if self._questions else None

    def end_all(self, why: str) -> None:
        """End every question that is open. The next connection may be another user's, in effect."""
        self._deaf = None
        self._end_each(list(self._questions), Unanswered(why))

    def _refused(self, subject: str) -> None:
        """End the questions that get no answer: they may not be asked, or their inbox may not be heard."""
        if subject == f"{self._prefix}*".lower():
            self._deaf = Forbidden(_forbidden("subscribe", f"{self._prefix}*"))
            self._forbid(list(self._questions), self._deaf)
            return
        asked = [token for token, each in self._questions.items() if each.subject.lower() == subject]
        if asked:
            told = Forbidden(_forbidden("publish", self._questions[asked[0]].subject))
            self._forbid(asked, told)

    def _forbid(self, tokens: list[str], answer: Forbidden) -> None:
        self._end_each(tokens, answer)
        if self.on_forbidden is not None:
            self.on_forbidden(answer)

    def _end_each(self, tokens: list[str], answer: Unanswered) -> None:
        for token in tokens:
            self._end(self._questions.pop(token), answer)

    @staticmethod
    def _end(question: _Question, answer: list[Message] | Unanswered) -> None:
        # It is done already when the one who asked was cancelled.
        if not question.future.done():
            question.future.set_result(answer)


def _forbidden(verb: str, subject: str) -> str:
    return (
        f"NATS does not permit this user to {verb} to {subject}: use another user, or permit it as "
        "deploy/nats-permissions.conf shows"
    )
