"""Publishing without waiting: a callback gets the answer, once, whatever happens."""

import asyncio

from streams.nats.answers import Answer, Put, Refused, Stored, Unanswered
from streams.nats.jetstream import JetStream
from streams.nats.protocol import SharedHeaders
from streams.nats.wire import Wire
from tests.contract.conftest import MakeStream
from tests.support.waiting import PATIENCE_S, KeptMessages

TOO_LARGE = 10054
MESSAGE_ID = "Nats-Msg-Id"


class Answers:
    """The answers to publishes that were begun, in the order in which they came."""

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self._came = asyncio.Event()
        self.all: list[Answer] = []

    def begin(self, put: Put, timeout_s: float = 2.0) -> None:
        self._js.begin_publish(put, self._take, timeout_s)

    def _take(self, answer: Answer) -> None:
        self.all.append(answer)
        self._came.set()

    async def next(self) -> Answer:
        """The next one that comes."""
        async with asyncio.timeout(PATIENCE_S):
            await self._came.wait()
        self._came.clear()
        return self.all[-1]


async def test_messages_are_stored_as_they_were(js: JetStream, make_stream: MakeStream, prefix: str) -> None:
    await make_stream()
    answers, headers = Answers(js), SharedHeaders({"X": "Grüße", MESSAGE_ID: "1"})
    answers.begin(Put(f"{prefix}.a", b"\x00\xffbody", headers))
    assert await answers.next() == Stored(1)
    answers.begin(Put(f"{prefix}.a", b"\x00\xffbody", headers))
    assert await answers.next() == Stored(1, duplicate=True)
    found = await js.message(prefix, 1)
    assert found is not None
    assert (found.data, found.headers) == (b"\x00\xffbody", dict(headers))


async def test_a_large_message_is_refused_with_its_shared_headers_counted(
    js: JetStream, make_stream: MakeStream, prefix: str
) -> None:
    await make_stream()
    answers, headers = Answers(js), SharedHeaders({"X": "1"})
    room = js.wire.max_payload - len(headers.block)
    answers.begin(Put(f"{prefix}.a", b"x" * (room + 1), headers))
    assert isinstance(refused := await answers.next(), Refused)
    assert refused.code == TOO_LARGE


async def test_a_publish_that_nothing_takes_is_unanswered(js: JetStream) -> None:
    answers = Answers(js)
    answers.begin(Put("nowhere", b""))
    assert isinstance(unanswered := await answers.next(), Unanswered)
    assert "nothing answers on nowhere" in unanswered.why


async def test_a_publish_without_an_answer_ends_once(js: JetStream, wire: Wire, prefix: str) -> None:
    """An answer that comes later is dropped."""
    await wire.subscribe(prefix, requests := KeptMessages())
    answers = Answers(js)
    answers.begin(Put(prefix, b""), timeout_s=0.2)
    (request,) = await requests.first(1)
    assert await answers.next() == Unanswered("no answer in time")
    await wire.publish(request.reply, b'{"stream": "S", "seq": 7}')
    assert await js.publish(prefix, b"", timeout_s=0.2) == Unanswered("no answer in time")
    assert len(answers.all) == 1


async def test_open_publishes_end_when_it_is_stopped_and_may_begin_others(
    js: JetStream, wire: Wire, prefix: str
) -> None:
    await wire.subscribe(prefix, requests := KeptMessages())
    ended = list[Answer]()

    def begin_again(answer: Answer) -> None:
        ended.append(answer)
        if len(ended) < 6:
            js.begin_publish(Put(prefix, b""), begin_again, 60)

    for _ in range(3):
        js.begin_publish(Put(prefix, b""), begin_again, 60)
    await requests.first(3)
    await js.stop()
    assert ended == [Unanswered("stopped")] * len(ended)
    assert len(ended) >= 6
