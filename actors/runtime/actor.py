"""The actor of one receiver: it holds its memory, asks the machine for the next step, and performs it.

No decision is made here, and none is split by an await: `_advance` runs synchronously from step to step until
an attempt has to be made or nothing is left to do. The task of an attempt continues with the attempt that
follows, so a busy receiver costs one task, and a resting one costs none.
"""

import asyncio
import logging
from typing import assert_never

from msgspec.structs import replace

from actors.configuration.policy import USUALLY_ADAPTIVE, Policy
from actors.errors import Unavailable
from actors.machine import commands as c
from actors.machine.bucket import inherit
from actors.machine.event import Event
from actors.machine.facts import Burial
from actors.machine.outcome import INTERNAL, Answered, Failed, NotSent, Outcome
from actors.machine.pace.quota_headers import QUOTA_HEADERS
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.next_step import next_step
from actors.machine.scheduling.rules import Rule
from actors.machine.scheduling.view import Cutoff, View
from actors.machine.state import State
from actors.memory.last_answers import failure_text
from actors.ports import Absent, Attempt, BatchAttempt, Invalid
from actors.runtime.backlog_reading import BacklogReading
from actors.runtime.burials import Burials
from actors.runtime.discard import discard_removed
from actors.runtime.environment import ActorEnvironment
from actors.runtime.eventless.handshaking import Handshaking
from actors.runtime.eventless.pinging import OfflinePinging
from actors.runtime.live_state import LiveState
from actors.runtime.pending import Pending
from actors.runtime.wake_timer import WakeTimer

ASK_AGAIN_S = 0.5
log = logging.getLogger(__name__)


class Actor:
    """One receiver at work: its live state, its pending events, its burials, and a timer.

    - `hold_count`: while it is not 0, nothing begins.
    - `adopted_policy`: the configuration that the facts name.
    - `removal_revision`: revision of the last known removal of the configuration.
    - `confirming`: the leader is being asked whether the receiver exists.
    - `absent_up_to`: when the leader last said that it does not, events had arrived up to this position.
    - `cutoff`: the order to give up everything up to a position.
    - `overflowed_at`: when events were last given up for `overflow`.
    """

    __slots__ = (
        "_attempt_end",
        "_wake_timer",
        "_waking",
        "absent_up_to",
        "active_at",
        "adopted_policy",
        "burials",
        "confirming",
        "cutoff",
        "environment",
        "handshaking",
        "hold_count",
        "last_answer",
        "live",
        "loaded",
        "offline_pinging",
        "overflowed_at",
        "pending",
        "pinging",
        "reading",
        "ready",
        "receiver",
        "removal_revision",
    )  # fmt: skip

    def __init__(self, receiver: str, environment: ActorEnvironment) -> None:
        self.receiver = receiver
        self.environment = environment
        self.live = LiveState(receiver, environment)
        self.pending = Pending(self.live)
        self.burials = Burials()
        self.handshaking = Handshaking(self.live, self.wake)
        self.offline_pinging = OfflinePinging(self.live, self.wake)
        self.loaded = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.adopted_policy: Policy | None = None
        self.removal_revision = 0
        self.hold_count = 0
        self.cutoff: Cutoff | None = None
        self.overflowed_at = 0.0
        self.pinging = 0
        self.confirming = False
        self.absent_up_to = 0
        self.last_answer: Answered | None = None
        self.active_at = environment.clock.now()
        self._wake_timer = WakeTimer(self.wake)
        self.reading = BacklogReading(self.pending, self.wake, self._try_later)
        self._attempt_end: asyncio.Future[None] | None = None
        self._waking = False

    @property
    def state(self) -> State:
        """The state as it is, confirmed or not."""
        return self.live.state

    @property
    def policy(self) -> Policy | None:
        """The configuration in force; None if none is known."""
        return self.live.policy

    @property
    def unacked_count(self) -> int:
        """Number of messages that are held for the receiver."""
        return len(self.pending.unacked.messages)

    # ---- loading

    def restore(self, state: State, policy: Policy | None) -> None:
        """Continue from the receiver's state, which is known now."""
        environment, live = self.environment, self.live
        live.restore(state, policy)
        self.loaded = True
        self.removal_revision = self._last_removal()
        if state.limit and state.bucket:
            bucket = inherit(
                state.bucket, state.limit, epoch=environment.epoch, claimed_at=environment.claimed_at,
                unclean=environment.unclean,
                unsettled=environment.may_have_posted(state, self.pending.unacked.first),
            )  # fmt: skip
            live.tokens.restore(state.limit, bucket)
        self.pending.restore(state)
        if not self.ready.done():
            self.ready.set_result(None)
        live.note_outage()
        self.wake()

    def arrive(self, event: Event) -> None:
        """Take a message of this receiver that the consumer handed out."""
        pending, now = self.pending, self.environment.clock.now()
        if not pending.unacked.add(event.position, now):
            return
        self.active_at = now
        if self.loaded:
            pending.queue_or_leave(event)
            # A receiver that waits for confirmations is woken by them.
            if not (self.live.waits_for_room or (pending.in_flight and self._is_busy)):
                if pending.unacked.batched_max > 1:
                    self._wake_soon()
                else:
                    self.wake(now)
        elif pending.mailbox.fits(event):
            pending.mailbox.append(event)

    def note_in_stream(self, position: int, source: int) -> None:
        """Take an event in the stream: it came when the receiver was unknown, or is known already."""
        pending, now = self.pending, self.environment.clock.now()
        if not pending.unacked.add(position, now):
            return
        self.active_at = now
        if self.loaded:
            pending.note_in_stream(position, source)
            if not self._is_busy:
                self.wake()

    @property
    def is_blank(self) -> bool:
        """True if no fact of the receiver is known, and nothing is held for it."""
        return not self.pending.unacked.messages and self.live.state == State(receiver=self.receiver)

    # ---- steps

    def wake(self, now: float | None = None) -> None:
        """Do the next steps, because something happened; `now` is given by a caller that knows the time."""
        now = self.environment.clock.now() if now is None else now
        while (post := self._advance(now)) is not None and self.live.policy is not None:
            self.environment.spawn(self._attempt(post, self.live.policy))
            if self._is_busy:
                return

    def _wake_soon(self) -> None:
        """Do the next steps after all messages that came together: they may go in one POST."""
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake_now)

    def _wake_now(self) -> None:
        self._waking = False
        self.wake()

    @property
    def _is_busy(self) -> bool:
        """True while a strict receiver has its one attempt in flight, which will do the next steps."""
        policy = self.live.policy
        return bool(self.pending.in_flight) and policy is not None and policy.order == "strict"

    def shown_view(self) -> View:
        """This memory for people, with bounds that asking does not change."""
        return replace(self.view(), bounds=self.pending.posting.shown())

    def view(self) -> View:
        """This memory as the machine sees it."""
        environment, live, pending = self.environment, self.live, self.pending
        tokens = live.tokens
        return View(
            waiting=pending.mailbox.events,
            open_in_memory=pending.open_in_memory,
            in_flight=pending.in_flight,
            posts_in_flight=pending.posts_in_flight,
            cursor=pending.cursor,
            cutoff=self.cutoff,
            overflowed_at=self.overflowed_at,
            has_unacked=bool(pending.unacked.messages),
            barrier_unconfirmed=live.barrier_index > environment.recorder.confirmed_index,
            burying=self.burials.under_way,
            granted_position=tokens.granted_position,
            policy_adopted=self.adopted_policy is live.policy,
            handshake_under_way=self.handshaking.under_way,
            offline_ping_under_way=self.offline_pinging.under_way,
            confirming=self.confirming,
            invalid=live.invalid,
            absent_up_to=self.absent_up_to,
            removal_revision=self.removal_revision,
            bucket=tokens.bucket,
            set_aside=tokens.set_aside,
            paced_at=live.pace_memory.paced_at if live.pace_memory else 0.0,
            bounds=pending.posting,
        )

    def _advance(self, now: float) -> s.Post | s.PostBatch | None:
        """Perform steps until nothing is left to do, or an attempt has to be made, which is returned."""
        environment, live, tokens, pending = self.environment, self.live, self.live.tokens, self.pending
        if not self.loaded or environment.stopped or self.hold_count:
            return None
        while True:
            if tokens.granted_position and now > tokens.lapsed_at:
                tokens.end_grant(now, environment.epoch, used=False)
            view = self.view()
            step = next_step(live.state, live.policy, view, now)
            match step:
                case s.Post() | s.PostBatch():
                    self._start(step, now)
                    return step
                case s.Rest() | s.WaitUntil():
                    live.waits_for_room = step.rule is Rule.UNREADY
                    if live.pace_memory is not None:
                        live.note_wait(step.rule, pending.posts_in_flight, now)
                    if live.waits_for_room:
                        environment.recorder.flush()
                    if tokens.granted_position and not view.barrier_unconfirmed:
                        # The attempt does not start after all.
                        tokens.end_grant(now, environment.epoch, used=False)
                    if isinstance(step, s.WaitUntil):
                        self._wake_timer.set(step.at, now)
                    return None
                case s.ReadBacklog() | s.ReadOpenEvents():
                    self.reading.start(step)
                    return None
                case s.Bury(burials):
                    self.burials.under_way = True
                    environment.spawn(self._bury(burials))
                case s.CountBacklog(after):
                    self.reading.start_count(after)
                case s.ConfirmReceiver():
                    self.confirming = True
                    environment.spawn(self._confirm_receiver())
                case s.Park():
                    self.park()
                case c.StartHandshake() | c.StartPing() if live.policy is not None:
                    is_ping = isinstance(step, c.StartPing)
                    (self.offline_pinging if is_ping else self.handshaking).start(live.policy, now)
                case c.StartHandshake() | c.StartPing():
                    return None
                case _:
                    self._perform(step, now)

    def _start(self, post: s.Post | s.PostBatch, now: float) -> None:
        """Take the token and the events; the attempt is made at once."""
        live, pending = self.live, self.pending
        if not post.has_token:
            live.tokens.take(now, self.environment.epoch)
        elif live.tokens.granted_position:
            live.tokens.end_grant(now, self.environment.epoch, used=True)
        adaptive = USUALLY_ADAPTIVE if live.policy is None else live.policy.adaptive
        if live.pace_memory is not None or adaptive.smart or adaptive.concurrency:
            live.start_paced(now, pending.posts_in_flight + 1)
        match post:
            case s.Post(event, numbered_first=is_numbered_first):
                events: tuple[Event, ...] = (event,)
                numbered = events if is_numbered_first else ()
            case s.PostBatch(events, numbered_first=numbered):
                pass
            case _:
                assert_never(post)
        if numbered:
            live.record(c.NumberEvents(numbered), now)
        pending.send(events)
        self.environment.attempt_started()

    def _perform(self, step: s.RecordedStep, now: float) -> None:
        """Record the step, and update the memory accordingly."""
        live, pending, epoch = self.live, self.pending, self.environment.epoch
        match step:
            case c.GiveUpEvents():
                self.give_up(step, now)
            case c.DropDuplicate(event) | c.RefuseEvent(event):
                live.record(step, now)
                pending.take_out(event)
                pending.settle(event.position)
            case c.StartAttempt(events):
                live.tokens.end_grant(now, epoch, used=False)  # It was for another event, which waits again.
                live.tokens.take(now, epoch)
                live.tokens.grant(events[0].position, now)
                pending.take_together(events)
                pending.open_in_memory |= {each.position: each for each in events}
                live.record(step, now)
            case c.OpenReceiver():
                if pending.is_behind_unknown:
                    self.park()
                else:
                    live.record(step, now)
            case c.Adopt():
                live.tokens.end_grant(now, epoch, used=False)
                limit = live.state.limit
                live.record(step, now)
                pending.shape_again()
                self.adopted_policy = live.policy
                pending.expect_batches(live.policy.batch if live.policy else None)
                if live.state.limit != limit:
                    live.tokens.restore(live.state.limit, live.state.bucket)
            case c.UnparkReceiver():
                pending.cursor.forget_left()
                live.record(step, now)
            case _:
                assert_never(step)

    def park(self) -> None:
        """Drop the waiting events from memory, and record that; they stay in the stream."""
        self.pending.park()

    def give_up(self, command: c.GiveUpEvents, now: float) -> None:
        """Make these events dead letters, whether they are in memory or not."""
        tokens = self.live.tokens
        if any(each.position == tokens.granted_position for each in command.events):
            tokens.end_grant(now, self.environment.epoch, used=False)
        self.live.record(command, now)
        if command.reason == "overflow":
            self.overflowed_at = now
        for each in command.events:
            self.pending.give_up(each.position)

    def give_up_to(self, position: int, reason: str) -> None:
        """Make all events up to `position` that are not settled dead letters."""
        if self.cutoff is None or self.cutoff.to < position:
            self.cutoff = Cutoff(position, reason)
        self.wake()

    # ---- attempts

    async def _attempt(self, post: s.Post | s.PostBatch | None, policy: Policy | None) -> None:
        """Make an attempt with the configuration at its decision, and the attempts that follow at once."""
        environment = self.environment
        while post is not None and policy is not None:
            attempt = self.live.attempt(post, policy)
            try:
                outcome = await environment.sender.send(attempt)
            except Exception as error:
                outcome = self.internal_failure(attempt, error)
            if environment.stopped:
                return
            now = environment.clock.now()
            self._attempt_ended(post.events, outcome, policy, now)
            environment.attempt_ended()
            post, policy = self._advance(now), self.live.policy
            if post is not None and not self._is_busy:
                self.wake()  # The outcome may have made room for more attempts than the next one.

    def internal_failure(self, attempt: Attempt | BatchAttempt, error: Exception) -> Failed:
        """The outcome of an attempt that a defect of Angarium ended."""
        event, sequence = attempt.numbered[0]
        about = {"receiver": self.receiver, "sequence": sequence, "trace_id": event.trace_id}
        log.exception("attempt.broken", extra=about)
        return Failed(error=INTERNAL, detail=type(error).__name__, latency_ms=0.0)

    def _attempt_ended(self, events: tuple[Event, ...], outcome: Outcome, policy: Policy, now: float) -> None:
        environment, live, pending = self.environment, self.live, self.pending
        self.active_at = now
        environment.totals.attempt_ended(outcome, events, now)
        if self._attempt_end is not None:
            self._attempt_end.set_result(None)
            self._attempt_end = None
        if isinstance(outcome, NotSent):
            pending.not_sent(events, outcome.unshapeable)
            return
        text, is_lesson = "", live.pace_memory is not None or outcome.status == 429
        if isinstance(outcome, Answered):
            self.last_answer = outcome.excerpt()
            if outcome.body and not 200 <= outcome.status < 300:
                text = failure_text(outcome, policy)
            for name, _ in outcome.headers:  # Written out: a call for each answer would cost more.
                is_lesson = is_lesson or name in QUOTA_HEADERS
        live.record(c.RecordOutcome(events, outcome, text), now)
        if is_lesson:
            live.learn(outcome, policy, now)
        for event in events:
            self.burials.answers.remember(event.position, text)
        pending.sent(events, now)

    async def until_attempt_ends(self) -> None:
        """Return when an attempt is over. The wait is cancelled if the shard stops before."""
        if self._attempt_end is None:
            self._attempt_end = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._attempt_end)

    # ---- burials

    async def _bury(self, burials: tuple[Burial, ...]) -> None:
        await self.burials.bury(self.live, burials)
        self.wake()

    # ---- configuration

    def configure(self, policy: Policy | None) -> None:
        """Take another configuration, or None if it seems to be gone."""
        self.live.policy, self.live.invalid = policy, False
        self.removal_revision = self._last_removal()
        if self.loaded:
            self.wake()

    def _last_removal(self) -> int:
        """Revision of the last removal of the configuration that the node knows."""
        removal = self.environment.policies.removal(self.receiver)
        return 0 if removal is None else removal.revision

    async def _confirm_receiver(self) -> None:
        """Ask the leader whether the receiver exists: only the leader decides if none is known."""
        environment, live, read_to = self.environment, self.live, self.pending.cursor.read_to
        try:
            answer = await environment.policies.confirm(self.receiver)
            self.removal_revision = self._last_removal()
            removed = live.state.opened and (
                isinstance(answer, Absent) or self.removal_revision > live.state.removal
            )
            if removed:
                await discard_removed(self)
        except Unavailable:
            self.confirming = False
            self._try_later()
            return
        self.confirming = False
        if environment.stopped:
            return
        match answer:
            case _ if live.policy is not None:
                pass
            case Policy():
                live.policy = answer
            case Invalid():
                live.invalid = True
            case Absent() if not removed:
                self.absent_up_to = read_to
            case Absent():
                pass
            case _:
                assert_never(answer)
        self.wake()

    def _try_later(self) -> None:
        if not self.environment.stopped:
            now = self.environment.clock.now()
            self._wake_timer.set(now + ASK_AGAIN_S, now)

    # ---- leaving memory

    @property
    def is_resting(self) -> bool:
        """True if the actor may leave memory: everything is confirmed, and nothing is in flight."""
        live, pending = self.live, self.pending
        return (
            self.loaded
            and live.state is live.confirmed
            and not (
                pending.mailbox or pending.open_in_memory or pending.unacked.messages or pending.in_flight
            )
            and not (self.pinging or pending.cursor.reading or self.confirming or self.burials.under_way)
            and not (self.handshaking.under_way or self.offline_pinging.under_way)
            and not (self.hold_count or live.state.is_unfinished)
            and not self._wake_timer.is_set
        )

    def close(self) -> None:
        """Stop waiting, and end every wait for this actor; the host forgets it."""
        self.ready.cancel()
        self._wake_timer.cancel()
        if self._attempt_end is not None:
            self._attempt_end.cancel()
