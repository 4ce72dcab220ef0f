"""The server in memory and the real one, side by side: the same requests get the same raw answers.

The other contract tests hold what `streams` needs; these hold what the simulator rests on. Requests are
drawn at random, and each is made on both servers before the next. What may differ is taken out of the
answers: instants, generated ids, what depends on the version of the server, and a consumer's count of
what is still to come, which drifts on the real one where messages are replaced.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from streams.nats.connection import ConnectOptions, connect
from streams.nats.wire import Message, Wire
from tests.sim.server import FakeServer
from tests.support.waiting import until

GRACE_S = 0.003
"""Time that an answer too many may take; one that comes later makes the next comparison fail."""

TURNS = 50
"""Turns of the event loop within which the server in memory has answered, however busy the machine is."""

STEPS = 120
SECOND = 1_000_000_000
INSTANT = re.compile(r'"\d{4}-\d\d-\d\dT[^"]*Z"')
NOT_COMPARED = {"cluster", "metadata", "Nats-Time-Stamp", "last_active", "ts", "did_create", "num_pending"}
LAST = "Nats-Expected-Last-Subject-Sequence"

Answer = tuple[str, Any, str, dict[str, str]]


class ComparedServer:
    """One of the two servers, and what is different there although it is the same."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._seen: list[Message] = []
        self.deliveries: list[str] = []

    async def ask(
        self, subject: str, data: bytes, headers: dict[str, str] | None, count: int | None
    ) -> list[Answer]:
        """The answers; `count`: how many there should be; None if the server in memory is to say."""
        self._seen = []
        inbox = self.wire.new_inbox()
        subscription = await self.wire.subscribe(inbox, self._seen.append)
        await self.wire.publish(subject, data, inbox, headers)
        if count is None:
            for _ in range(TURNS):
                await asyncio.sleep(0)
        else:
            with contextlib.suppress(TimeoutError):
                await until(lambda: len(self._seen) >= count)
            await asyncio.sleep(GRACE_S)
        await subscription.unsubscribe()
        return [self._normal(message, inbox) for message in self._seen]

    def _normal(self, message: Message, inbox: str) -> Answer:
        if message.reply.startswith("$JS.ACK") and message.reply not in self.deliveries:
            self.deliveries.append(message.reply)
        headers = {k: v for k, v in (message.headers or {}).items() if k not in NOT_COMPARED}
        if headers.get("Status") == "503":
            headers.pop("Description", None)
        subject = "inbox" if message.subject == inbox else message.subject
        reply = re.sub(r"\.\d{19}\.\d+$", "", message.reply)
        return subject, self._normal_data(message.data), reply, headers

    def _normal_data(self, data: bytes) -> Any:
        text = data.decode("latin-1")
        if not text.startswith("{"):
            return text
        return _without_defaults(json.loads(INSTANT.sub('"instant"', text)))


def _without_defaults(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {k: _without_defaults(v) for k, v in value.items() if k not in NOT_COMPARED}
        return {k: v for k, v in kept.items() if v not in (0, "", None, False, {}, [])}
    return [_without_defaults(v) for v in value] if isinstance(value, list) else value


class BothServers:
    """Both servers at once. Deliveries are named by their place in the order in which they came."""

    def __init__(self, memory: ComparedServer, real: ComparedServer) -> None:
        self.memory = memory
        self.real = real

    async def ask(self, subject: str, body: Any = b"", headers: dict[str, str] | None = None) -> list[Answer]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        ours = await self.memory.ask(subject, data, headers, None)
        theirs = await self.real.ask(subject, data, headers, len(ours))
        _compare(ours, theirs, f"{subject} {data!r} {headers}")
        return theirs

    async def ack(self, place: int, body: bytes) -> None:
        ours = await self.memory.ask(self.memory.deliveries[place], body, None, None)
        theirs = await self.real.ask(self.real.deliveries[place], body, None, len(ours))
        _compare(ours, theirs, f"{self.real.deliveries[place]} {body!r}")


def _compare(ours: list[Answer], theirs: list[Answer], what: str) -> None:
    assert len(ours) == len(theirs), f"{what}\nmemory: {ours}\nreal: {theirs}"
    for one, other in zip(ours, theirs, strict=True):
        differences = "\n".join(_differences(one, other))
        assert not differences, f"{what}\n{differences}"


def _differences(one: Any, other: Any, place: str = "") -> list[str]:
    """Lists the differences of two answers, as `place: memory, real`."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted(one.keys() | other.keys())
        parts = [_differences(one.get(name), other.get(name), f"{place}.{name}") for name in names]
        return [line for part in parts for line in part]
    if isinstance(one, tuple) and isinstance(other, tuple):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for place, (a, b) in pairs for line in _differences(a, b, str(place))]
    return [] if one == other else [f"{place}: {one!r}, {other!r}"]


@pytest.fixture
async def compared(nats_url: str) -> AsyncIterator[BothServers]:
    real = await connect(ConnectOptions(servers=(nats_url,), name="facts"))
    memory = FakeServer().connect("facts")
    yield BothServers(ComparedServer(memory), ComparedServer(real))
    await memory.close()
    await real.close()


CONFIGS: dict[str, dict[str, Any]] = {
    "journal": {"allow_atomic": True, "allow_direct": True, "discard": "new", "max_msgs": 60},
    "bucket": {
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_atomic": True,
        "allow_direct": True,
        "max_bytes": 1500,
    },
    "old": {"max_msgs_per_subject": 3, "max_msgs": 25, "max_bytes": 2000, "allow_direct": True},
    "small": {"max_msg_size": 40, "allow_msg_ttl": True, "discard": "new", "max_bytes": 2000},
}


class Script:
    """Draws requests for one stream and one consumer."""

    def __init__(self, compared: BothServers, name: str, chance: Random) -> None:
        self.compared = compared
        self.name = name
        self.chance = chance
        self.last = 0
        self.batches = 0

    def subject(self) -> str:
        return f"{self.name}.{self.chance.choice('aab')}.{self.chance.choice('xyz')}"

    def pattern(self) -> str:
        one = [f"{self.name}.>", f"{self.name}.*.x", f"{self.name}.a.>", f"{self.name}.b.y", self.subject()]
        return self.chance.choice(one)

    def sequence(self) -> int:
        return self.chance.randint(0, self.last + 2)

    def headers(self) -> dict[str, str]:
        drawn = {
            "H": "v",
            "Nats-Msg-Id": str(self.chance.randint(0, 20)),
            LAST: str(self.sequence()),
            "Nats-Expected-Last-Sequence": str(self.last - self.chance.randint(0, 1)),
            "Nats-Rollup": "sideways",
            "Nats-TTL": self.chance.choice(["1h", "60s", "500ms"]),
            "Nats-Expected-Stream": self.chance.choice([self.name, "other"]),
        }
        headers = {name: value for name, value in drawn.items() if self.chance.random() < 0.12}
        if LAST in headers and self.chance.random() < 0.5:
            headers[f"{LAST}-Subject"] = self.subject()
        return headers

    async def publish(self) -> None:
        body = bytes(self.chance.choice([0, 5, 50, 120]))
        self._note(await self.compared.ask(self.subject(), body, self.headers()))

    def _note(self, answers: list[Answer]) -> None:
        for _, data, _, _ in answers:
            if isinstance(data, dict):
                self.last = max(self.last, data.get("seq", 0))

    async def batch(self) -> None:
        """With now and then a fault in its numbers, or an expectation that cannot hold."""
        self.batches += 1
        for number in range(1, length := self.chance.randint(1, 4) + 1):
            shown = number + (self.chance.random() < 0.05)
            headers = {"Nats-Batch-Id": str(self.batches), "Nats-Batch-Sequence": str(shown)}
            if number == 1 and self.chance.random() < 0.3:
                headers |= self.headers()
            if number == length - 1:
                headers["Nats-Batch-Commit"] = self.chance.choice(["1", "1", "1", "eob", "x"])
            self._note(await self.compared.ask(self.subject(), b"in a batch", headers))

    async def read(self) -> None:
        body = self.chance.choice(
            [
                {"seq": self.sequence()},
                {"last_by_subj": self.pattern()},
                {"next_by_subj": self.pattern(), "seq": self.sequence()},
                {"seq": self.sequence(), "last_by_subj": "both"},
                {},
            ]
        )
        await self.compared.ask(f"$JS.API.STREAM.MSG.GET.{self.name}", body)

    async def read_page(self) -> None:
        page = {"seq": self.sequence(), "next_by_subj": self.pattern(), "batch": self.chance.randint(1, 8)}
        if self.chance.random() < 0.3:
            page["max_bytes"] = self.chance.randint(1, 200)
        await self.compared.ask(f"$JS.API.DIRECT.GET.{self.name}", page)

    async def look(self) -> None:
        body = {"subjects_filter": self.pattern()} if self.chance.random() < 0.5 else b""
        await self.compared.ask(f"$JS.API.STREAM.INFO.{self.name}", body)
        await self.compared.ask(f"$JS.API.CONSUMER.INFO.{self.name}.c")

    async def purge(self) -> None:
        await self.compared.ask(f"$JS.API.STREAM.PURGE.{self.name}", {"seq": max(self.sequence() - 8, 1)})

    async def delete(self) -> None:
        await self.compared.ask(f"$JS.API.STREAM.MSG.DELETE.{self.name}", {"seq": max(self.sequence(), 1)})

    async def pull(self) -> None:
        """One that does not wait, so that its end is known."""
        pull: dict[str, Any] = {"batch": self.chance.randint(1, 6), "no_wait": True}
        await self.compared.ask(f"$JS.API.CONSUMER.MSG.NEXT.{self.name}.c", pull)

    async def ack(self) -> None:
        if self.compared.real.deliveries:
            recent = self.compared.real.deliveries[-12:]
            place = len(self.compared.real.deliveries) - 1 - self.chance.randrange(len(recent))
            await self.compared.ack(
                place, self.chance.choice([b"", b"+ACK", b"+ACK", b"-NAK", b"+TERM", b"+WPI"])
            )

    async def run(self, steps: int) -> None:
        often: list[Callable[[], Any]] = [self.publish] * 8 + [self.pull] * 4 + [self.ack] * 6
        seldom: list[Callable[[], Any]] = [self.batch, self.read, self.read_page, self.look]
        rare: list[Callable[[], Any]] = [self.purge, self.delete]
        for _ in range(steps):
            kind = self.chance.choices([often, seldom, rare], [60, 30, 6])[0]
            await self.chance.choice(kind)()
        await self.look()


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 10))])
async def test_both_give_the_same_answers(compared: BothServers, prefix: str, config: str, seed: int) -> None:
    chance = Random(f"{config} {seed}")
    stream = {"name": prefix, "subjects": [f"{prefix}.>"], "storage": "file"} | CONFIGS[config]
    await compared.ask(f"$JS.API.STREAM.CREATE.{prefix}", stream)
    consumer = {
        "name": "c",
        "filter_subject": f"{prefix}.a.>",
        "ack_policy": "all",
        "ack_wait": 600 * SECOND,
        "max_ack_pending": 7,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 600 * SECOND,
    }
    body = {"stream_name": prefix, "config": consumer, "action": "create"}
    await compared.ask(f"$JS.API.CONSUMER.CREATE.{prefix}.c", body)
    await Script(compared, prefix, chance).run(STEPS)
