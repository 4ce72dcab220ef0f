"""The table of the next step, compared with what the machine does: the first rule that applies decides.

Each rule is told here once more, in other words and by itself, so that only the table gives their order.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from msgspec import Struct

from actors.configuration.policy import Adaptive, BatchLimits, Offline, Policy, Rate, Retry
from actors.configuration.transform import Transform
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.decide import FAILURES_IN_A_ROW_MAX
from actors.machine.event import Event
from actors.machine.handshake.proof import handshake_key
from actors.machine.numbering import Frontier
from actors.machine.pace.pace import HeaderLimit, Pace
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.next_step import next_step
from actors.machine.scheduling.rules import Rule
from actors.machine.scheduling.view import FixedBounds, UnreadCursor, View
from actors.machine.scheduling.without_policy import step_without_policy
from actors.machine.state import BURIALS_MAX, Handshake, OpenEvent, Returning, State
from actors.status import held_back
from tests.unit.worlds.values import NOW, URL

DRAWN = 20_000
AGE_S = 60.0
BATCHES = (None, None, BatchLimits(max_events=1), BatchLimits(max_events=3), BatchLimits(linger_s=20))
PACE = Pace(told=HeaderLimit(0.5, NOW + 60))
DROP = Transform(drop=("/a",))
Steps = type[Any] | tuple[type[Any], ...]


class Case(Struct, frozen=True):
    """A receiver in some state, and what memory holds of it."""

    state: State
    policy: Policy | None
    view: View

    @property
    def step(self) -> s.Step:
        return next_step(self.state, self.policy, self.view, NOW)


class CandidateEvent(Struct, frozen=True):
    """The event whose turn it may be; `entry` is None for the next one that has no number."""

    case: Case
    policy: Policy
    entry: OpenEvent | None

    @property
    def event(self) -> Event | None:
        view = self.case.view
        return view.open_in_memory.get(self.entry.position) if self.entry else view.head

    @property
    def there(self) -> bool:
        return bool(self.entry or self.event or self.unread)

    @property
    def unread(self) -> bool:
        state, view = self.case.state, self.case.view
        return (
            not self.entry and not self.event and state.parked and view.cursor.read_to < view.cursor.seen_to
        )

    @property
    def over(self) -> bool:
        stored_at = self.entry.stored_at if self.entry else self.event.stored_at if self.event else None
        stored_at = self.case.state.waiting_since if self.unread else stored_at
        return self.there and stored_at is not None and stored_at + AGE_S <= NOW

    @property
    def room(self) -> bool:
        return len(self.case.state.burials) < BURIALS_MAX or self.unread

    @property
    def held(self) -> bool:
        state, failed = self.case.state, self.entry is not None and self.entry.next_at > NOW
        blocked = bool(self.policy.paused or state.disabled or failed or self.unproven)
        return blocked or self.backs_off or self.throttled or self.waits_for_nodes

    @property
    def waits_for_nodes(self) -> bool:
        return needs_newer_nodes(self.case.state, self.policy, self.case.view)

    @property
    def unproven(self) -> bool:
        known = self.case.state.handshake
        return self.policy.handshake == "hmac" and not (known is not None and known.verified)

    @property
    def pings(self) -> bool:
        """A ping takes the place of its attempt, unless that is recorded already."""
        view, position = self.case.view, self.entry.position if self.entry else self.position
        granted = bool(position) and view.granted_position == position
        known = view.bounds.all_know_offline_pings
        return is_offline(self.case.state, self.policy) and known and not (granted or self.unproven)

    @property
    def asks_later(self) -> bool:
        known = self.case.state.handshake
        return known is not None and known.next_at > NOW

    @property
    def throttled(self) -> bool:
        return self.case.state.throttled_until > NOW

    @property
    def backs_off(self) -> bool:
        state = self.case.state
        awaited = self.policy.order == "strict" and bool(state.open) and state.open[0].next_at > NOW
        return state.backoff_until > NOW or awaited

    @property
    def needed(self) -> list[OpenEvent]:
        """The first of them, as many as one POST may have."""
        return self.together[: self.policy.batch.max_events] if self.policy.batch else self.together

    @property
    def together(self) -> list[OpenEvent]:
        """The open events that go with this one; none if one of them is in flight."""
        if self.entry is None:
            return []
        view, opened, first = self.case.view, self.case.state.open, self.entry
        if not self.policy.batch:
            return [first]
        if first.post:
            fellows = [each for each in opened if each.post == first.post]
            return [] if any(each.position in view.in_flight for each in fellows) else fellows
        if first.attempts:
            return [first]
        run = list[OpenEvent]()
        for each in opened[opened.index(first) :]:
            if each.post or each.attempts or each.position in view.in_flight:
                break
            run.append(each)
        return run

    @property
    def count(self) -> int:
        """Number of events that go in the POST."""
        run = self.together
        if self.policy.batch is None:
            return 1
        open_after = bool(run) and run[-1] is not self.case.state.open[-1]
        tried = self.entry is not None and self.entry.attempts > 0
        joins = not (tried or open_after) and self.case.view.head is not None
        return min(self.policy.batch.max_events, len(run) + joins)

    @property
    def lingers(self) -> bool:
        batch, view, run = self.policy.batch, self.case.view, self.together
        if batch is None or not batch.linger_s or (self.entry and self.entry.attempts):
            return False
        if (run and run[-1] is not self.case.state.open[-1]) or self.count >= batch.max_events:
            return False
        since = self.entry.stored_at if self.entry else view.head.stored_at if view.head else None
        if view.cursor.read_to < view.cursor.seen_to:
            if self.count or view.cursor.left_min >= batch.max_events:
                return False
            since = self.case.state.waiting_since
        return since is not None and since + batch.linger_s > NOW

    @property
    def too_large(self) -> bool:
        return self.policy.batch is not None and self.count > self.case.view.bounds.room

    @property
    def needs_token(self) -> bool:
        view, limit = self.case.view, self.case.state.limit
        return (
            limit is not None
            and view.bucket is not None
            and (self.unproven or self.pings or view.granted_position != self.position)
        )

    @property
    def paced(self) -> bool:
        """One attempt in two seconds was learnt, until later; one that is recorded first may start."""
        learnt = self.case.state.pace is not None and self.policy.adaptive.headers and not self.slow
        return learnt and self.case.view.paced_at > NOW - 2 and not self.granted

    @property
    def granted(self) -> bool:
        return bool(self.position) and self.case.view.granted_position == self.position

    @property
    def position(self) -> int:
        return self.event.position if self.event else 0

    @property
    def slow(self) -> bool:
        limit = self.case.state.limit
        return limit is not None and limit.per_second < 0.1


def adopts(state: State, policy: Policy, view: View) -> bool:
    return not view.policy_adopted or state.frontier.size != policy.dedup_window


def is_offline(state: State, policy: Policy) -> bool:
    """True for a receiver that is offline, and gets pings."""
    return policy.offline.ping and state.failing_since is not None and state.failing_since <= NOW - 300


def needs_newer_nodes(state: State, policy: Policy, view: View) -> bool:
    """True if a transform is to be adopted that an older node could not read."""
    known = view.bounds.all_know_transforms or policy.transform is None
    return adopts(state, policy, view) and not (view.in_flight or known)


OF_RECEIVER: dict[Rule, tuple[Callable[[State, Policy, View], bool], Steps]] = {
    Rule.BURIAL: (
        lambda state, _, view: bool(state.burials) and not (view.burying or view.barrier_unconfirmed), s.Bury,
    ),
    Rule.OPENING: (lambda state, _, view: not state.opened, c.OpenReceiver),
    Rule.REMOVAL: (lambda state, _, view: view.removal_revision > state.removal, s.ConfirmReceiver),
    Rule.ADOPTION: (
        lambda state, policy, view: adopts(state, policy, view)
        and not needs_newer_nodes(state, policy, view),
        c.Adopt,
    ),
    Rule.COUNTING: (
        lambda _, policy, view: not (view.cursor.is_counted or view.cursor.is_counting)
        and view.cursor.seen_to - view.cursor.read_to > policy.backlog_max,
        s.CountBacklog,
    ),
    Rule.IN_FLIGHT: (
        lambda state, policy, view: (view.posts_in_flight if policy.batch else len(view.in_flight))
        >= width(state, policy),
        (),
    ),
    Rule.DUPLICATE: (
        lambda state, _, view: view.head is not None and (
            view.head.key in state.frontier.window
            if view.head.position > state.frontier.position
            else all(each.position != view.head.position for each in state.open)
        ),
        c.DropDuplicate,
    ),
    Rule.UNPARKING: (
        lambda state, _, view: state.parked and view.cursor.read_to >= view.cursor.seen_to
        and all(each.position > view.cursor.seen_to for each in state.open)
        and (view.head is None or view.head.position > view.cursor.seen_to),
        c.UnparkReceiver,
    ),
}  # fmt: skip
OF_EVENT: dict[Rule, tuple[Callable[[CandidateEvent], bool], Steps]] = {
    Rule.GIVING_UP: (lambda turn: turn.over and turn.room, (c.GiveUpEvents, s.ReadBacklog)),
    Rule.READING: (
        lambda turn: turn.unread and turn.case.view.bounds.may_try_host
        and not (turn.over or turn.held or turn.lingers or turn.pings),
        s.ReadBacklog,
    ),
    Rule.UNCONFIRMED: (lambda turn: turn.case.view.barrier_unconfirmed, ()),
    Rule.BURIALS_FULL: (lambda turn: turn.over and not turn.room, ()),
    Rule.OLDER_NODES_TRANSFORM: (lambda turn: turn.waits_for_nodes, ()),
    Rule.RESTING: (lambda turn: not turn.there, ()),
    Rule.DISABLED: (lambda turn: bool(turn.case.state.disabled), ()),
    Rule.PAUSED: (lambda turn: turn.policy.paused, ()),
    Rule.UNVERIFIED: (
        lambda turn: turn.unproven and (turn.throttled or turn.backs_off or turn.asks_later), (),
    ),
    Rule.THROTTLED: (lambda turn: turn.throttled, ()),
    Rule.BACKING_OFF: (lambda turn: turn.backs_off, ()),
    Rule.RETRYING: (lambda turn: turn.entry is not None and turn.entry.next_at > NOW, ()),
    Rule.IN_HANDSHAKE: (lambda turn: turn.unproven and turn.case.view.handshake_under_way, ()),
    Rule.PINGING: (lambda turn: turn.pings and turn.case.view.offline_ping_under_way, ()),
    Rule.DOWN_HOST_UNREAD: (
        lambda turn: turn.event is None and not (turn.unproven or turn.pings)
        and not turn.case.view.bounds.may_try_host,
        (),
    ),
    Rule.FETCHING: (
        lambda turn: turn.entry is not None and not (turn.unproven or turn.pings) and any(
            each.position not in turn.case.view.open_in_memory for each in turn.needed
        ),
        s.ReadOpenEvents,
    ),
    Rule.BATCH_IN_FLIGHT: (
        lambda turn: turn.entry is not None and not (turn.together or turn.unproven or turn.pings), (),
    ),
    Rule.LINGERING: (lambda turn: turn.lingers and not (turn.unproven or turn.pings), ()),
    Rule.UNREADY: (
        lambda turn: not turn.case.view.bounds.may_start
        or (turn.too_large and not (turn.unproven or turn.pings)),
        (),
    ),
    Rule.OUTAGE: (lambda turn: not turn.case.view.bounds.may_reach, ()),
    Rule.OLDER_NODES: (lambda turn: turn.unproven and not turn.case.view.bounds.all_know_handshakes, ()),
    Rule.PACE: (lambda turn: not (turn.unproven or turn.pings) and turn.paced, ()),
    Rule.TOKEN: (
        lambda turn: turn.needs_token and turn.case.view.bucket is not None
        and turn.case.view.bucket.tokens < 1,
        (),
    ),
    Rule.HANDSHAKE: (lambda turn: turn.unproven, c.StartHandshake),
    Rule.DOWN_HOST: (
        lambda turn: not turn.case.view.bounds.may_try_host and (
            turn.case.state.limit is None or (turn.needs_token and turn.case.view.bucket is not None)
        ),
        (),
    ),
    Rule.OFFLINE_PING: (lambda turn: turn.pings, c.StartPing),
    Rule.SLOW_START: (lambda turn: turn.needs_token and turn.slow, c.StartAttempt),
    Rule.POSTING: (lambda turn: True, (s.Post, s.PostBatch)),
}  # fmt: skip
HELD = {Rule.DISABLED, Rule.PAUSED, Rule.UNVERIFIED, Rule.THROTTLED, Rule.BACKING_OFF}
DROPPING = HELD | {Rule.OLDER_NODES_TRANSFORM}
"""The rules under which a receiver drops its waiting events from memory."""
ACTS = {rule: acts for table in (OF_RECEIVER, OF_EVENT) for rule, (_, acts) in table.items()}


def width(state: State, policy: Policy) -> int:
    down = state.consecutive_failures >= FAILURES_IN_A_ROW_MAX or is_offline(state, policy)
    if policy.order == "strict" or down:
        return 1
    returning, most = state.returning, policy.concurrency
    if returning is None or returning.begins_at <= NOW - 60:
        return most
    return min(most, {0: 1, 1: 2, 2: 2, 3: 4}[returning.successes])


def turns(case: Case, policy: Policy) -> Iterator[CandidateEvent]:
    """The events whose turn it may be, as the docstring of `Rule` tells them."""
    if policy.order == "strict":
        yield CandidateEvent(case, policy, case.state.open[0] if case.state.open else None)
        return
    idle = [each for each in case.state.open if each.position not in case.view.in_flight]
    if idle:
        due = min(idle, key=lambda each: each.next_at)
        yield CandidateEvent(case, policy, due)
        if idle[0] is not due:
            yield CandidateEvent(case, policy, idle[0])
    yield CandidateEvent(case, policy, None)


def first_that_holds(case: Case) -> set[Rule]:
    """The rule that decides; for several events in relaxed order, each that may."""
    policy = case.policy
    for rule in Rule:
        match policy:
            case None if rule is Rule.UNCONFIGURED:
                return {rule}
            case Policy() if rule in OF_RECEIVER and OF_RECEIVER[rule][0](case.state, policy, case.view):
                return {rule}
            case None if rule is Rule.BURIAL and OF_RECEIVER[rule][0](case.state, Policy(url=URL), case.view):
                return {rule}
            case Policy() if rule in OF_EVENT:
                break
            case _:
                continue
    assert policy is not None
    found = list(turns(case, policy))
    acting = [turn for turn in found if acts(turn)]
    return {first(turn) for turn in (acting[:1] or found)}


def acts(turn: CandidateEvent) -> bool:
    """True if something can be done about the event: if nothing else, it is dropped from memory."""
    rule = first(turn, besides=Rule.UNCONFIRMED)
    return bool(ACTS[rule]) or (rule in DROPPING and turn.event is not None)


def first(turn: CandidateEvent, *, besides: Rule | None = None) -> Rule:
    """The first rule that holds for the event."""
    rules = (rule for rule in Rule if rule in OF_EVENT and rule is not besides)
    return next(rule for rule in rules if OF_EVENT[rule][0](turn))


def drawn_bounds(random: Random) -> FixedBounds:
    """Draw the bounds, each of which mostly allows everything."""
    names = (
        "may_start", "may_reach", "may_try_host", "all_know_handshakes", "all_know_transforms",
        "all_know_offline_pings",
    )  # fmt: skip
    return FixedBounds(room=random.choice((1, 256)), **{name: random.random() >= 0.15 for name in names})


def drawn(random: Random) -> Case:
    """Draw a receiver; what may hold one back is absent most of the time, so that each rule has a turn."""

    def some(share: float = 0.15) -> bool:
        return random.random() < share

    old_to = random.choice((0, 0, 0, 2, 9, 99))

    def age(position: int) -> int:
        return 90 if position <= old_to else 9

    def event(position: int) -> Event:
        return Event(position=position, id=f"e{position}", stored_at=NOW - age(position), body=b"{}")

    order: Any = random.choice(("strict", "relaxed"))
    limit = random.choice((None, None, RateLimit(2.0, 2), RateLimit(0.01, 1)))
    policy = Policy(
        url=URL, order=order, concurrency=3, paused=some(0.1), retry=Retry(max_age_s=AGE_S), backlog_max=1000,
        rates=(Rate(limit=2, burst=2),) if limit else (), handshake="hmac" if some(0.3) else "none",
        batch=random.choice(BATCHES), transform=DROP if some(0.3) else None,
        adaptive=Adaptive(headers=some(0.7)), offline=Offline(ping=some(0.5)),
    )  # fmt: skip
    tried, key = some(0.5), handshake_key(policy)
    known = Handshake(key=key, next_at=0.0 if (ok := some(0.5)) else NOW + 9, verified=ok) if tried else None
    grouped = some(0.5)
    positions = sorted(random.sample(range(1, 9), random.choice((0, 0, 1, 1, 3))))
    opened = [event(position) for position in positions]
    entries = tuple(
        OpenEvent(
            sequence=index + 1, position=each.position, id=each.id, stored_at=each.stored_at,
            next_at=NOW + (-1 if grouped else random.choice((-1, -1, 1, 5))), attempts=int(grouped),
            post=(1, 3) if grouped and len(opened) > 1 else None,
        )
        for index, each in enumerate(opened)
    )  # fmt: skip
    head = event(random.randint(10, 20) if not some(0.1) else 9) if some(0.6) else None
    window = head.key if head and some(0.1) else b""
    burials = random.choice((0, 0, 0, 0, 0, 1, BURIALS_MAX))
    read_to = random.randint(9, 12)
    in_flight = [each for each in positions if some()]
    state = State(
        receiver="acme.billing", opened=not some(0.05), removal=0, open=entries, limit=limit,
        frontier=Frontier(position=9, sequence=9, window=window, size=64 if some(0.05) else 256),
        burials=tuple(f.Burial(position=1, reason="expired") for _ in range(burials)),
        throttled_until=NOW + 9 if some(0.1) else 0.0, backoff_until=NOW + 9 if some(0.1) else 0.0,
        consecutive_failures=9 if some() else 0, disabled="gone" if some(0.05) else "", paused=policy.paused,
        handshake=known, pace=PACE if some(0.4) else None, parked=some(0.4),
        failing_since=NOW - 500 if some(0.3) else None,
        returning=Returning(begins_at=NOW - random.choice((1, 99)), successes=random.randrange(4))
        if some() else None,
        waiting_since=NOW - age(positions[0] if positions else 50) if some(0.7) else None,
    )  # fmt: skip
    cursor = UnreadCursor(
        read_to=read_to, seen_to=random.choice((0, read_to, read_to + 5, read_to + 2000)),
        is_counted=some(0.5), is_counting=some(0.3),
    )  # fmt: skip
    view = View(
        cursor=cursor, waiting=(head,) if head else (), in_flight=in_flight, posts_in_flight=len(in_flight),
        open_in_memory={
            each.position: each for each in opened if some(0.6) and each.position not in in_flight
        },
        barrier_unconfirmed=some(), burying=some(0.7), handshake_under_way=some(),
        offline_ping_under_way=some(),
        bounds=drawn_bounds(random),
        granted_position=random.choice((0, 0, *positions, head.position if head else 0)),
        paced_at=NOW - random.choice((1, 3)),
        policy_adopted=not some(0.05), confirming=some(0.5), removal_revision=1 if some(0.05) else 0,
        bucket=Bucket(random.choice((0.0, 1.0)), NOW, 1) if limit else None,
    )  # fmt: skip
    return Case(state, None if some(0.05) else policy, view)


def rule_of(step: s.Step, expected: set[Rule]) -> Rule | None:
    """The rule that brought about this step; one that acts has to be of the kind that is expected."""
    if isinstance(step, s.Rest | s.WaitUntil | s.Park):
        return step.rule
    (rule,) = expected
    return rule if isinstance(step, ACTS[rule]) else None


def test_the_first_rule_that_holds_decides() -> None:
    random, met = Random(1), set[Rule]()
    for _ in range(DRAWN):
        case = drawn(random)
        expected = first_that_holds(case)
        if expected == {Rule.UNCONFIGURED}:
            assert case.step == step_without_policy(case.state, case.view, NOW)
        else:
            assert rule_of(case.step, expected) in expected, case
        met |= expected
    assert met == set(Rule)


def test_no_phase_says_otherwise() -> None:
    """A receiver that is held back makes no attempt; a wait by such a rule has the phase of its name."""
    random, met = Random(2), set[str]()
    for _ in range(DRAWN):
        case = drawn(random)
        step, phase = case.step, held_back(case.state, case.policy, NOW)
        if isinstance(step, s.Rest | s.WaitUntil | s.Park) and step.rule in HELD:
            assert phase in (step.rule.name.lower(), "offline")
        if isinstance(step, s.Post | s.PostBatch | c.StartAttempt):
            assert phase in (None, "offline")
        if isinstance(step, c.StartPing):
            assert phase == "offline"
        if isinstance(step, c.StartHandshake):
            assert phase == "unverified"
        met.add(str(phase))
    assert met == {"None", "misconfigured", "offline", *(rule.name.lower() for rule in HELD)}
