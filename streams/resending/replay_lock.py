"""The lock of a receiver's replays, and the plan of its holder: which events, and how far it has come.

The plan is also the lock (`streams.resending.plan_lock`).
"""

from msgspec import Struct, field

from actors.machine.event import Event
from actors.subscriptions import matches
from streams.clock import Timekeeper
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.resending.job import Job
from streams.resending.plan_lock import LOCK_LEASE_S, HeldPlan, PlanLock

VERSION = 1


class EventsToResend(Struct, frozen=True, kw_only=True):
    """The events of a receiver to send again: after `begin`, up to `until`, of types that match a pattern.

    Copies of an earlier replay or redrive are excluded, and so are the events at `waiting`, which are not
    settled yet. `removal` is the revision of the receiver's last removal before, 0 if there was none. It is
    None if an older Angarium chose them: then it is that at the first read.
    """

    begin: int
    until: int
    types: tuple[str, ...] = ()
    waiting: tuple[int, ...] = ()
    removal: int | None = None

    def takes(self, event: Event) -> bool:
        """True if the event has to be sent again."""
        if event.again or event.malformed or event.position in self.waiting:
            return False
        return not self.types or any(matches(each, event.type) for each in self.types)


class EndedJob(Struct, frozen=True, kw_only=True):
    """The job that the plan held before a command replaced it; the other members are those of its plan."""

    job: Job
    ended_at: float
    remaining: int = field(default=0, name="left")
    sent: int = 0
    again: str = ""


class ReplayPlan(HeldPlan, frozen=True, kw_only=True):
    """The plan of a replay.

    - `unfinished`: True until everything is sent, or the replay was given up.
    - `created`: when the deliveries stream was created.
    - `done_to`: all messages up to here are dealt with.
    - `remaining`: number of messages after it.
    - `stream_end`: the copies of these messages are after this position of the deliveries.
    - `sent`: number of copies so far.
    - `again`: the value of `angarium-again` of the copies, which receivers see.
    - `nonce`: part of the message ids only.
    - `pace_s`: the time between two copies; 0 if an older Angarium began it, which did not record that.
    - `due_at`: when the next copy is due, if the job was released until then, in seconds since the epoch.
    - `api_job`: the job, if processes of the API run it.
    - `command_job`: the job, if a command runs it itself.
    - `previous`: the last job of the API before that command.
    """

    unfinished: bool = False
    created: str = ""
    events: EventsToResend = field(default=EventsToResend(begin=0, until=0), name="choice")
    done_to: int = field(default=0, name="cursor")
    remaining: int = field(default=0, name="left")
    stream_end: int = field(default=0, name="after")
    sent: int = 0
    again: str = field(default="", name="mark")
    nonce: str = ""
    pace_s: float = 0.0
    due_at: float = 0.0
    api_job: Job | None = field(default=None, name="job")
    command_job: Job | None = field(default=None, name="command")
    previous: EndedJob | None = None

    def ended_job(self, ended_at: float) -> EndedJob | None:
        """The last job of this receiver, if it has ended."""
        if self.api_job is None:
            return self.previous
        return EndedJob(
            job=self.api_job, ended_at=ended_at, remaining=self.remaining, sent=self.sent, again=self.again
        )


class ReplayLock(PlanLock[ReplayPlan]):
    """The lock of the replays for one receiver; `run` names the command that holds it."""

    def __init__(
        self, js: JetStream, names: Names, receiver: str, run: str, time: Timekeeper, *,
        lease_s: float | None = None, by: str = "",
    ) -> None:  # fmt: skip
        plan = ReplayPlan(v=VERSION, run=run, step=0, at=time.wall(), held=True, by=by)
        super().__init__(
            js, names.actors, names.actor_keys.replay(receiver), plan, "replay", time, lease_s or LOCK_LEASE_S
        )
