"""The workload of a run: producers publish, and operators change configurations, during faults.

Everything is drawn from the seed: distinct and repeated ids, malformed types, bursts that no mailbox holds,
receivers that are put later than their events or taken away, rates, windows, pauses, pings, also in place of
events, handshakes, learnt paces, idle times.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from actors.errors import Unavailable
from actors.runtime.actor import Actor
from streams.buckets.stored_configurations import StoredConfigurations
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.sim.checks.folded_journals import Deliveries
from tests.sim.world.process import Process
from tests.sim.world.receivers import POISON, Manner

if TYPE_CHECKING:
    from tests.sim.run import Run

RATES: tuple[dict[str, Any] | list[Any] | None, ...] = (
    None, None, {"limit": 10, "burst": 20}, {"limit": 5, "burst": 1}, [{"limit": 1, "burst": 5}, "3/second"],
    {"limit": 0.3, "burst": 2}, {"limit": 4, "per": "minute", "burst": 2}, {"limit": 2, "per": "minute"},
)  # fmt: skip
AGAIN_S = 0.2
LATE_S = 5.0
"""Until then, requests that a sleeping node has kept are dealt with."""
AGE_S = 90.0
"""Longer than `max_age_s`."""

REGIONS = ("", "eu", "us")
"""The regions of events; the first one is none."""
FILTERS = (None, None, "fanout > `20`", "fanout < `10` || fanout > `40`", "length(fanout) > `1`")
"""Filters on the bodies of fan-outs; the last one fails on each."""
SOON = {"base_s": 0.05, "cap_s": 0.2}
TRANSFORMS: tuple[dict[str, Any] | None, ...] = (
    None, {"drop": ["/number"]}, {"pseudonymize": ["/number"]}, {"keep": ["/other"]},
    {"keep": ["/*"], "pseudonymize": ["/number"]},
)  # fmt: skip
PSEUDONYM_KEYS = ("psk_" + "b2xk" * 8, "psk_" + "bmV3" * 8)
ADAPTIVE = ("headers", "after_429", "concurrency", "smart")
SECRETS = ("whsec_" + "b2xk" * 8, "whsec_" + "bmV3" * 8)
"""The secrets of receivers that have to prove themselves."""


class Workload:
    """`done`: after `calm`, everything that was to be put is put."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.chance = chance = run.world.random("workload")
        self.receivers = run.plan.receivers
        hot = run.plan.hot
        self.done = False
        self._orders = run.world.random("orders")
        self._poison = self._orders.choice((0.0, 0.0, 0.05))
        self._backlogs = run.world.random("backlogs")
        self._bounded = self._backlogs.random() < 0.3
        self._given_up = self._backlogs.random() < 0.3
        self._ages = self._backlogs.random() < 0.05
        self._gaps = run.world.random("gaps")
        self._batches = run.world.random("batches")
        self._batched = self._batches.choice((0.0, 0.0, 0.5, 1.0))
        self._pause_between = self._gaps.choice((0.0, 0.0, 0.05, 0.2))
        self.deletes = self._gaps.random() < 0.25
        self._proofs = run.world.random("handshakes")
        self._asks_for_proofs = self._proofs.random() < 0.2
        self._rules = run.world.random("choices")
        self._sets_rules = self._rules.random() < 0.4
        self._transforms = run.world.random("transforms")
        self._transformed = self._transforms.random() < 0.3
        self._paces = run.world.random("paces")
        self._adapts = self._paces.random() < 0.5
        self._uneven = run.world.random("uneven")
        self._woken = asyncio.Event()
        self._calm = asyncio.Event()
        self._events = 0
        self._events_max = chance.choice((30, 100, 300, 300, 1000))
        self._pause_s = chance.choice((0.01, 0.03) if hot else (0.02, 0.1, 0.5, 2.0))
        self._change_s = chance.choice((0.2, 0.5, 1.0) if hot else (1.0, 5.0, 5.0, 1000.0))
        self._repeats = chance.choice((0.0, 0.1, 0.5))
        self._malformed = chance.choice((0.0, 0.0, 0.05))
        self._bursts = chance.choice((0.0, 0.0, 0.03))
        self._pings = chance.random() < 0.4
        self._late = {each for each in self.receivers if chance.random() < 0.15}
        self._removes = chance.random() < 0.25

    def start(self) -> None:
        self.run.world.spawn("producer", self._produce)
        self.run.world.spawn("operator", self._operate)
        if self.deletes:
            self.run.world.after(self._gaps.random(), self._delete)
        if self._adapts:
            self.run.world.after(3 * self._paces.random(), self._fail)

    def calm(self) -> None:
        """Let every receiver be as good as it can be."""
        self._calm.set()
        self._woken.set()

    def started(self) -> None:
        """At the start of an attempt, the backlog may be given up."""
        if self._pause_between and self._gaps.random() < self._pause_between:
            self._woken.set()

    # ---- publishing

    async def _produce(self, process: Process) -> None:
        wire = await self.run.network.connect(process)
        chance = self.chance
        while self._events < self._events_max and not self._calm.is_set():
            await asyncio.sleep(chance.expovariate(1 / self._pause_s))
            receiver = uneven(
                self._uneven, self.run.plan.flood, self.receivers, chance.choice(self.receivers)
            )
            many = chance.randint(50, 150) if chance.random() < self._bursts else 1
            for _ in range(many):
                await self._publish(wire, receiver)
        await wire.close()

    async def _publish(self, wire: Wire, receiver: str) -> None:
        """Publishes without waiting for an answer: the server may accept or refuse it."""
        self._events += 1
        chance, headers = self.chance, dict[str, str]()
        if chance.random() < self._repeats:
            headers["Angarium-Id"] = f"e{max(1, self._events - chance.choice((1, 2, 5, 20, 40, 100)))}"
            if chance.random() < 0.1:
                headers["Angarium-Again"] = f"again{chance.randint(1, 3)}"
        elif self._orders.random() < self._poison:
            headers["Angarium-Id"] = f"{POISON}{self._events}"
        elif chance.random() < 0.9:
            headers[chance.choice(("Angarium-Id", "Nats-Msg-Id"))] = f"e{self._events}"
        if chance.random() < self._malformed:
            headers["Angarium-Type"] = chance.choice(("angarium.mine", "two words"))
        if self._sets_rules and (region := self._rules.choice(REGIONS)):
            headers["Angarium-Region"] = region
        subject = self.run.names.publish_to(receiver)
        is_text = self._transformed and self._transforms.random() < 0.03
        body = (b"number %d" if is_text else b'{"number":%d}') % self._events
        await wire.publish(subject, body, headers=headers)

    # ---- operating

    async def _operate(self, process: Process) -> None:
        wire = await self.run.network.connect(process)
        js = JetStream(wire)
        await js.start()
        configurations = StoredConfigurations(js, self.run.names)
        self.run.receivers.allowed_per_minute = self._proofs.choice((None, 600, 1200))
        for receiver in self.receivers:
            if receiver not in self._late:
                await self._put(configurations, receiver, self._policy())
        while not self._calm.is_set():
            try:
                async with asyncio.timeout(self.chance.expovariate(1 / self._change_s)):
                    await self._woken.wait()
            except TimeoutError:
                await self._change(js, configurations, self.chance.choice(self.receivers))
            else:
                self._woken.clear()
                if not self._calm.is_set():
                    await self._give_up(js, configurations, self._gaps.choice(self.receivers))
        await asyncio.sleep(LATE_S)
        if self._ages:
            for receiver in self.receivers:
                await self._put(configurations, receiver, self._policy() | {"paused": True})
            await asyncio.sleep(AGE_S)
        for receiver in self.receivers:
            await self._put(configurations, receiver, self._good())
            await _until(partial(self._control, js, "resume", receiver))
        self.done = True
        await js.stop()
        await wire.close()

    async def _change(self, js: JetStream, configurations: StoredConfigurations, receiver: str) -> None:
        chance = self.chance
        if self._given_up and self._backlogs.random() < 0.4:
            await self._give_up(js, configurations, receiver)
            return
        if self._asks_for_proofs and self._proofs.random() < 0.3:
            await self._ask_for_a_proof(js, receiver)
            return
        match chance.random():
            case draw if draw < 0.5:
                await self._put(configurations, receiver, self._policy())
            case draw if draw < 0.6 and self._removes:
                self.run.world.say("the operator removes %s", receiver)
                await configurations.delete(receiver)
            case draw if draw < 0.8 and self._pings:
                await self._control(js, "ping", receiver)
            case draw if draw < 0.9:
                await self._control(js, chance.choice(("pause", "resume", "inspect")), receiver)
            case _:
                self.run.receivers.change(receiver)

    async def _give_up(self, js: JetStream, configurations: StoredConfigurations, receiver: str) -> None:
        """Discards a backlog, or replaces its receiver at once."""
        match self._backlogs.choice(("skip", "skip", "forget", "put again")):
            case "put again":
                self.run.world.say("the operator removes %s", receiver)
                await configurations.delete(receiver)
                await self._put(configurations, receiver, self._policy())
            case verb:
                await self._control(js, verb, receiver)

    def _delete(self) -> None:
        """Deletes messages that their owner knows, and that cannot have been posted without a record."""
        run = self.run
        if self._calm.is_set():
            return
        run.world.after(2 * self._gaps.random(), self._delete)
        posted, stream = run.checkers.posted, run.server.streams[run.names.deliveries]
        for node in run.checkers.nodes.values():
            for number, shard in node.owned.items():
                if shard.claim.epoch == run.checkers.journals[number].epoch:
                    for actor in shard.host.actors.values():
                        for position in _left(actor, run.checkers.deliveries):
                            if not posted(actor.receiver, position) and self._gaps.random() < 0.1:
                                stream.remove(position)

    def _fail(self) -> None:
        """Let a receiver fail for so long that it is offline, and another one later."""
        run, chance = self.run, self._paces
        if self._calm.is_set():
            return
        receiver = chance.choice(self.receivers)
        run.receivers.set_on(receiver, chance.choice((Manner.ERRS, Manner.IS_AWAY, Manner.RESETS)))
        length_s = chance.uniform(1.5, 6.0)
        run.world.after(length_s, partial(self._recover, receiver))
        run.world.after(length_s + 4 * chance.random(), self._fail)

    def _recover(self, receiver: str) -> None:
        if not self._calm.is_set():
            self.run.receivers.change(receiver)

    async def _put(self, configurations: StoredConfigurations, receiver: str, policy: dict[str, Any]) -> None:
        self.run.world.say("the operator puts %s: %s", receiver, policy)
        raw = msgspec.json.encode(policy)

        async def stored() -> bool:
            return isinstance(await configurations.put(receiver, raw), Stored)

        await _until(stored)

    async def _control(self, js: JetStream, verb: str, receiver: str) -> bool:
        subject = self.run.names.control(verb, *receiver.split("."))
        try:
            answer = await js.request(subject, b"", 5.0)
        except Unavailable:
            return False
        self.run.world.say("%s %s: %s", verb, receiver, answer.data)
        return bool(msgspec.json.decode(answer.data)["ok"])

    def _policy(self) -> dict[str, Any]:
        chance = self.chance
        return dict(self._members()) | self._handshake() | self._transform() | {
            "url": f"https://example.com/{chance.choice('aab')}",
            "events": self.run.fanout_producer.patterns(),
            "timeout_s": chance.choice((0.1, 0.5, 2.0)),
            "retry": {
                "base_s": chance.choice((0.05, 0.5, 3.0)), "cap_s": chance.choice((3.0, 10.0)),
                "max_attempts": chance.choice((0, 0, 1, 3)), "rejected_attempts": chance.choice((1, 2, 3)),
                "max_age_s": 60,
            },
        } | self._pace()  # fmt: skip

    def _members(self) -> Iterator[tuple[str, Any]]:
        chance = self.chance
        if (rate := chance.choice(RATES)) is not None:
            yield "rate", rate
        if self._orders.random() < 0.4:
            yield "order", "relaxed"
            yield "concurrency", self._orders.choice((1, 2, 4, 8, 64))
        if self._batches.random() < self._batched:
            yield "batch", {
                "max_events": self._batches.choice((1, 2, 3, 10, 100, 256)),
                "max_bytes": self._batches.choice((20, 200, 262_144)),
                "linger_s": self._batches.choice((0, 0, 0.05, 1, 5)),
            }  # fmt: skip
        yield "dedup_window", chance.choice((16, 16, 20, 30, 64))
        if chance.random() < 0.1:
            yield "paused", True
        if self._sets_rules:
            yield (
                "region",
                self._rules.sample(REGIONS[1:], self._rules.choice((0, 0, 1, 2))) or None,
            )
            if (text := self._rules.choice(FILTERS)) is not None:
                yield "filter", text
        if self._bounded:
            yield "backlog_max", self._backlogs.choice((1, 5, 20, 100, 1000))

    def _handshake(self) -> dict[str, Any]:
        proofs = self._proofs
        if not self._asks_for_proofs or proofs.random() < 0.3:
            return {}
        return {
            "handshake": proofs.choice(("hmac", "hmac", "cloudevents")),
            "secrets": [proofs.choice(SECRETS)],
        }

    def _transform(self) -> dict[str, Any]:
        """A transform, mostly with the same key of pseudonyms; one that needs none has none now and then."""
        chance = self._transforms
        if not self._transformed:
            return {}
        key, transform = PSEUDONYM_KEYS[chance.random() < 0.1], chance.choice(TRANSFORMS)
        needs_none = transform is None or "pseudonymize" not in transform
        return {
            "transform": transform,
            "pseudonym_key": None if needs_none and chance.random() < 0.2 else key,
        }

    def _pace(self) -> dict[str, Any]:
        """Switches of `adaptive`, and what the receiver gets while it is offline."""
        chance = self._paces
        if not self._adapts or chance.random() < 0.2:
            return {}
        return {
            "adaptive": {name: chance.random() < 0.5 for name in ADAPTIVE},
            "offline": {"after_s": 1, "ping": chance.random() < 0.8},
            "retry": {"base_s": 0.3, "cap_s": 1.0, "max_age_s": 60},
        }

    async def _ask_for_a_proof(self, js: JetStream, receiver: str) -> None:
        """Give the receiver a secret, which need not be that of its configuration, or ask for a handshake."""
        if self._proofs.random() < 0.5:
            self.run.receivers.secrets[receiver] = self._proofs.choice(SECRETS)
        else:
            await self._control(js, "verify", receiver)

    def _good(self) -> dict[str, Any]:
        """A configuration with which everything settles within a reasonable time."""
        rate = self.chance.choice((None, {"limit": 20, "burst": 3}))
        policy = self._policy() | {"retry": SOON, "paused": False, "rate": rate, "adaptive": None}
        return {name: value for name, value in policy.items() if value is not None}


def uneven(chance: Random, flood: float, names: Sequence[str], usual: str) -> str:
    """The usual one, or the first of all, as probably as that."""
    return names[0] if chance.random() < flood else usual


def _left(actor: Actor, deliveries: Deliveries) -> list[int]:
    """The places of events that are in the stream alone, and known to be there."""
    pending, cursor = actor.pending, actor.pending.cursor
    if not actor.loaded or cursor.reading or not actor.state.parked:
        return []
    waiting = deliveries.between(actor.receiver, cursor.read_to, cursor.last_stored.position)
    return waiting + [each.position for each in actor.live.confirmed.open if not pending.has(each.position)]


async def _until(done: Callable[[], Awaitable[bool]]) -> None:
    """Tries an operation until it succeeds."""
    while not await done():  # noqa: ASYNC110  # A retry, with nothing to wait for.
        await asyncio.sleep(AGAIN_S)
