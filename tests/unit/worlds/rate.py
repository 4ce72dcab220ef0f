"""A random explorer of the token bucket with changing owners; `test_bucket.py` runs it.

One receiver, three nodes. True time is the explorer's own; wall clocks lie within half of CLOCK_SKEW_S of it
and step at any moment, monotonic clocks run true. Owners end cleanly, crash, or are cut off and go on until
their lease ends; facts wait for a flush, which a crash loses, or stores without an answer. Actors are loaded
late, passivated, idle for hours; rates change; events are given up, receivers removed and put again. What the
bucket becomes is decided by the product's own functions, on the state folded from the product's own facts.

Checked in true time, at every start of an attempt: in any window at most the burst in force at its start plus
the integral of the rate in force attempts start, where in force is what was recorded last. If several limits
hold, each keeps this from when it came into force. Each rule of RULES can be switched off; a seed that then
breaks the promise shows what the rule is for.
"""

from random import Random

from msgspec.structs import replace

from actors.configuration.policy import Policy, Rate
from actors.machine.bucket import (
    CLOCK_SKEW_S,
    GRANT_MAX_S,
    Bucket,
    RateLimit,
    Unclean,
    give_back,
    inherit,
    refill,
    take,
)
from actors.machine.commands import (
    Adopt,
    Command,
    GiveUpEvents,
    OpenReceiver,
    RecordOutcome,
    RemoveReceiver,
    StartAttempt,
    StartPing,
)
from actors.machine.decide import decide, with_their_numbers
from actors.machine.event import Event
from actors.machine.evolve import evolve
from actors.machine.facts import Fact, RateSet
from actors.machine.handshake.proof import limit_in_force
from actors.machine.outcome import Answered
from actors.machine.state import State

LEASE_S = 10.0
RULES = {
    "mono": "within one ownership, now = the wall at the claim plus monotonic time since",
    "gap": "time between owners is credited only beyond the clocks' skew",
    "keep": "the bucket is inherited, not filled",
    "empty": "after an unclean takeover it is empty if an event was stored and unsettled at the claim",
    "carry": "a clean claim carries the last unclean one",
    "slow_first": "a slow bucket's attempt is recorded before it is made",
    "lease": "an owner starts nothing after its lease",
    "ping_first": "a ping is recorded before it is made",
    "settle": "every fact that settles carries the bucket",
    "clean": "clean means that the journal's last claim was released, not that somebody tidied up",
    "rate_fact": "another rate is recorded before anything starts under it; inheritance goes by the record",
    "tombstone": "a removed receiver keeps its bucket",
    "set_aside": "a token whose attempt is recorded first takes up room until the attempt starts",
    "lapse": "a recorded attempt starts soon, or needs another token",
    "each": "an attempt takes a token of each limit that holds",
}
RATES = (
    Rate(limit=10, burst=20), Rate(limit=10, burst=1), Rate(limit=1, burst=60), Rate(limit=0.2, burst=20),
    Rate(limit=1, per="minute", burst=1), Rate(limit=1, per="minute", burst=4),
    Rate(limit=6, per="hour", burst=2), Rate(limit=1, per="hour", burst=1),
)  # fmt: skip


class PromiseBroken(Exception):
    """More attempts started in some window than the promise allows."""


class Judge:
    """A limit in force: what it granted, and the least of burst + starts − grants of all windows."""

    def __init__(self) -> None:
        self.granted = 0.0
        self.least = float("inf")


class Owner:
    """One ownership: its clock, and the actor in its memory."""

    def __init__(self, node: int, epoch: int, wall: float, since: float, unclean: Unclean | None) -> None:
        self.node = node
        self.epoch = epoch
        self.claimed_at = wall
        self.since = since
        self.unclean = unclean
        self.state: State | None = None
        self.bucket: Bucket | None = None
        self.waiting: set[int] = set()
        self.flying = 0
        self.facts: list[Fact] = []


class RateWorld:
    """One run. `state` is what the journal says, `stored` the positions that it does not settle."""

    def __init__(self, seed: str, off: str = "") -> None:
        self.random = Random(seed)
        # Apart from the other choices, so that a seed with a single rate goes on as it did without lists.
        self.others = Random(f"{seed} rates")
        self.counts = self.others.choice(((0,), (0,), (0, 1, 2)))
        self.off = off
        self.now = 0.0
        self.policy = self.draw_policy()
        self.state = State(receiver="acme.billing")
        self.stored: set[int] = set()
        self.position = self.epoch = 0
        self.released = self.tidied = True
        self.unclean: Unclean | None = None
        self.skews = [self.draw_skew() for _ in range(3)]
        self.zombie: Owner | None = None
        self.in_force = RateLimit(0.0, 0)
        self.starts = 0
        self.judges, self.lasting = [Judge()], dict[tuple[float, int], Judge]()
        self.owner = self.claim()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def draw_policy(self) -> Policy:
        rates = (self.random.choice(RATES), *self.others.sample(RATES, self.others.choice(self.counts)))
        return Policy(url="https://example.com", rates=rates)

    @property
    def limit(self) -> RateLimit:
        """The configured limit, in force or not."""
        limit = limit_in_force(self.policy, None)
        assert limit is not None
        return limit

    def draw_skew(self) -> float:
        return self.random.uniform(-CLOCK_SKEW_S / 2, CLOCK_SKEW_S / 2)

    # ---- true time, and the promise

    def sleep(self, seconds: float) -> None:
        for judge, limit in self.judged:
            judge.granted += limit.per_second * seconds
        self.now += seconds

    def start(self) -> None:
        """An attempt starts."""
        self.starts += 1
        for judge, limit in self.judged:
            judge.least = min(judge.least, limit.burst + self.starts - 1 - judge.granted)
            if (excess := self.starts - judge.granted - judge.least) > 1e-6:
                raise PromiseBroken(f"{excess:.2f} attempts too many at {self.now:.0f} under {limit}")

    @property
    def limits_in_force(self) -> tuple[RateLimit, ...]:
        return (self.in_force, *self.in_force.others)

    @property
    def judged(self) -> list[tuple[Judge, RateLimit]]:
        """Each limit in force, with the judge of its place, and with its own."""
        limits = self.limits_in_force
        own = [(self.lasting[each.per_second, each.burst], each) for each in limits if each.burst]
        return [*zip(self.judges, limits, strict=True), *own]

    def bring_into_force(self, limit: RateLimit) -> None:
        """Another limit holds from now on: those of its limits that are new get a judge."""
        self.in_force, count = limit, 1 + len(limit.others)
        self.judges = (self.judges + [Judge() for _ in range(count)])[:count]
        in_force = {(each.per_second, each.burst) for each in self.limits_in_force}
        self.lasting = {each: self.lasting.get(each) or Judge() for each in in_force}

    # ---- ownership and journal

    def claim(self) -> Owner:
        clean = self.tidied if self.off == "clean" else self.released
        node = self.random.randrange(3)
        wall = self.now + self.skews[node]
        self.epoch += 1
        if not clean:
            self.unclean = Unclean(self.epoch, self.position, wall)
        elif self.off == "carry":
            self.unclean = None
        self.released = self.tidied = False
        return Owner(node, self.epoch, wall, self.now, self.unclean)

    def flush(self, owner: Owner) -> None:
        for fact in owner.facts:
            self.state = evolve(self.state, fact)
            if isinstance(fact, RateSet) and fact.limit is not None:
                self.bring_into_force(fact.limit)
        owner.facts.clear()
        self.stored = {each for each in self.stored if each > self.state.frontier.position}
        self.stored |= {each.position for each in self.state.open}

    def load(self, owner: Owner) -> None:
        """The actor comes into memory; a bucket recorded by an earlier owner is inherited as of the claim."""
        state, unclean = self.state, owner.unclean
        if self.off == "rate_fact":
            state = replace(state, limit=self.limit)
            self.bring_into_force(self.limit)
        owner.state, owner.bucket, owner.waiting = state, state.bucket, set(self.stored)
        if state.limit is None or state.bucket is None:
            return
        unsettled = unclean is not None and any(each <= unclean.position for each in self.stored)
        owner.bucket = inherit(
            state.bucket, state.limit, epoch=owner.epoch, claimed_at=owner.claimed_at, unclean=unclean,
            unsettled=unsettled and self.off != "empty",
        )  # fmt: skip
        if state.bucket.epoch != owner.epoch and self.off == "keep":
            owner.bucket = Bucket(float(state.limit.burst), owner.claimed_at, owner.epoch)

    def clock(self, owner: Owner) -> float:
        if self.off == "mono":
            return self.now + self.skews[owner.node]
        return owner.claimed_at + self.now - owner.since

    def filled(self, owner: Owner) -> Bucket | None:
        if owner.state is not None and owner.state.limit is not None and owner.bucket is not None:
            owner.bucket = refill(owner.bucket, owner.state.limit, self.clock(owner), owner.epoch)
        return owner.bucket

    def record(self, owner: Owner, command: Command, bucket: Bucket | None, *, at_once: bool) -> None:
        assert owner.state is not None
        for fact in decide(owner.state, self.policy, command, self.clock(owner), bucket):
            owner.state = evolve(owner.state, fact)
            owner.facts.append(fact)
        if at_once:
            self.flush(owner)

    def put_policy(self) -> None:
        self.policy = self.draw_policy()
        if self.off == "rate_fact":
            # In the mutant's favour: it is not known what is in force without a record.
            old, new = self.in_force, self.limit
            highest = RateLimit(max(old.per_second, new.per_second), max(old.burst, new.burst))
            self.bring_into_force(highest)

    # ---- what an owner does

    def event(self, position: int) -> Event:
        return Event(position=position, id=f"e{position}", stored_at=0.0, body=b"")

    def attempt(self, owner: Owner, *, ping: bool = False, cut_off: bool = False) -> bool:
        """Make an attempt if there is one to be made; an owner that is cut off cannot record one first."""
        filled, state = self.filled(owner), owner.state
        if state is None or state.limit is None or filled is None or not (ping or owner.waiting):
            return False
        left, slow = take(replace(filled, others=()) if self.off == "each" else filled), state.limit.is_slow
        first = self.off != "ping_first" if ping else slow and self.off != "slow_first"
        if left is None or (first and cut_off):
            return False
        owner.bucket = left
        if first:
            head = StartPing() if ping else StartAttempt((self.event(min(owner.waiting)),))
            self.record(owner, head, left, at_once=True)
            if not self.confirm(owner):
                return False
        self.start()
        owner.flying += not ping
        return True

    def confirm(self, owner: Owner) -> bool:
        """Wait for the record; whether the attempt may start after it. Nothing else starts meanwhile."""
        random, state = self.random, owner.state
        took_s = random.choice((0, 0, 0, 0.01, GRANT_MAX_S, 30, 1000)) * random.random()
        self.sleep(took_s)
        assert state is not None
        assert state.limit is not None
        if owner.bucket is not None:
            granted = 0 if self.off == "set_aside" else 1
            owner.bucket = refill(owner.bucket, state.limit, self.clock(owner), owner.epoch, granted)
        late = took_s > GRANT_MAX_S and self.off != "lapse"
        if late and owner.bucket is not None:
            owner.bucket = give_back(owner.bucket)
        return not late

    def end_attempt(self, owner: Owner) -> None:
        if owner.flying:
            owner.flying -= 1
            if not owner.waiting:
                return
            position, bucket = min(owner.waiting), self.filled(owner)
            status = 200 if self.random.random() < 0.6 else 500
            if status == 200:
                owner.waiting.remove(position)
            answer = Answered(status=status, latency_ms=1.0)
            command = RecordOutcome((self.event(position),), answer)
            self.record(owner, command, bucket, at_once=False)

    def give_up(self, owner: Owner) -> None:
        bucket = None if self.off == "settle" else self.filled(owner)
        for position in sorted(owner.waiting):
            assert owner.state is not None
            events = with_their_numbers(owner.state, (self.event(position),))
            self.record(owner, GiveUpEvents(events, "skipped"), bucket, at_once=False)
        owner.waiting.clear()
        self.flush(owner)

    def put_again(self, owner: Owner) -> None:
        """The receiver is removed and put again."""
        now, bucket = self.clock(owner), self.filled(owner)
        self.record(owner, RemoveReceiver(self.position, len(owner.waiting)), bucket, at_once=True)
        assert owner.state is not None
        if self.off == "tombstone" and owner.bucket and owner.state.limit:
            owner.bucket = Bucket(float(owner.state.limit.burst), now, owner.epoch)
        self.record(owner, OpenReceiver(self.position, 256), None, at_once=True)
        owner.waiting.clear()

    def configure(self, owner: Owner) -> None:
        """The configuration is taken up."""
        assert owner.state is not None
        bucket, before = self.filled(owner), owner.state.limit
        if self.off == "rate_fact" and bucket is not None:
            self.bring_into_force(self.limit)
            owner.state = replace(owner.state, limit=self.limit)
            owner.bucket = replace(bucket, tokens=min(bucket.tokens, float(self.limit.burst)))
            return
        self.record(owner, Adopt(self.position, owner.epoch), bucket, at_once=True)
        if owner.state.limit != before:
            owner.bucket = owner.state.bucket

    # ---- how an ownership ends

    def crash(self) -> None:
        """Dead at once, or cut off and going on until the lease ends. The last flush may have been stored."""
        owner, random = self.owner, self.random
        if random.random() < 0.5:
            self.flush(owner)
        end = self.now + random.uniform(0, LEASE_S)
        while random.random() < 0.8 and self.now < end:
            self.attempt(owner, ping=random.random() < 0.1, cut_off=True)
            pause = random.choice((0, 0, 0.1, 1)) * random.random() / max(self.in_force.per_second, 1e-3)
            self.sleep(min(end - self.now, pause))
        owner.facts.clear()
        self.zombie = owner if self.off == "lease" else None
        self.sleep(max(0.0, end - self.now) + random.choice((0.5, 0.5, 5, 30, 400, 4000)) * random.random())
        self.tidied = random.random() < 0.1
        self.owner = self.claim()

    def hand_over(self) -> None:
        while self.owner.flying:
            self.end_attempt(self.owner)
        self.flush(self.owner)
        self.released = self.tidied = True
        self.sleep(self.random.choice((0, 2, 400, 4000)) * self.random.random())
        self.owner = self.claim()

    def publish(self) -> None:
        for _ in range(self.random.choice((1, 4, 40))):
            self.position += 1
            self.stored.add(self.position)
            if self.owner.state is not None:
                self.owner.waiting.add(self.position)

    def step(self) -> None:
        random, owner = self.random, self.owner
        per_token, burst = 1 / max(self.in_force.per_second, 1e-3), max(self.in_force.burst, 1)
        pauses = (0, 0, 0, 0, 0, 0.2 * per_token, per_token, per_token * burst, 20, 20 * per_token * burst)
        self.sleep(random.choice(pauses) * random.random())
        match random.random():
            case draw if draw < 0.12:
                self.publish()
            case draw if draw < 0.20:
                self.end_attempt(owner)
            case draw if draw < 0.26:
                self.flush(owner)
            case draw if draw < 0.30:
                self.skews[random.randrange(3)] = self.draw_skew()
            case draw if draw < 0.33:
                self.put_policy()
            case draw if draw < 0.46:
                self.crash()
            case draw if draw < 0.52:
                self.hand_over()
            case draw if draw < 0.58 and self.zombie is not None:
                self.attempt(self.zombie)
            case _ if owner.state is None:
                if random.random() < 0.5:
                    self.load(owner)
            case draw if draw < 0.62:
                self.configure(owner)
            case draw if draw < 0.66:
                self.give_up(owner) if random.random() < 0.7 else self.put_again(owner)
            case draw if draw < 0.68 and not owner.flying:
                self.flush(owner)
                owner.state = None
            case _:
                for _ in range(random.choice((1, 1, 3, 30))):
                    if not self.attempt(owner, ping=random.random() < 0.05):
                        break
