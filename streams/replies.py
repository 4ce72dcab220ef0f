"""Questions and their answers over one inbox: every question ends, by an answer or by a stated reason.

One subscription takes all answers; the last token of the subject tells whose it is. Deadlines are held
by one sweep while anything is waiting, so that a question costs one future and no timer.
"""

import asyncio
from collections.abc import Callable

from streams.answers import Unanswered
from streams.errors import Disconnected
from streams.wire import Message, Subscription, Wire

SWEEP_S = 0.1
"""How much later than its deadline a question may end."""


class _Question:
    __slots__ = ("deadline", "future", "is_part", "parts")

    def __init__(
        self,
        future: asyncio.Future[list[Message] | Unanswered],
        deadline: float,
        is_part: Callable[[Message], bool] | None,
    ) -> None:
        self.future = future
        self.deadline = deadline
        self.is_part = is_part
        self.parts: list[Message] = []


class Replies:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._questions: dict[str, _Question] = {}
        self._asked = 0
        self._prefix = ""
        self._subscription: Subscription | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._prefix = self._wire.new_inbox() + "."
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
        if message.headers is not None and not message.data and message.headers.get("Status") == "503":
            return Unanswered(f"nobody answers on {subject}")
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
        self._asked += 1
        token = str(self._asked)
        question = _Question(self._loop.create_future(), self._loop.time() + timeout_s, is_part)
        self._questions[token] = question
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
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
        for token in late:
            self._end(self._questions.pop(token), Unanswered("no answer in time"))
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep) if self._questions else None

    def end_all(self, why: str) -> None:
        """End every question that is open."""
        questions, self._questions = self._questions, {}
        for question in questions.values():
            self._end(question, Unanswered(why))

    @staticmethod
    def _end(question: _Question, answer: list[Message] | Unanswered) -> None:
        # It is done already when the one who asked was cancelled.
        if not question.future.done():
            question.future.set_result(answer)
