"""Values for tests of the machine: an actor in a line, an event, an answer, and what follows from it."""

from typing import Any

from actors.configuration.policy import Policy, Rate, Retry
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.bucket import Bucket
from actors.machine.decide import decide
from actors.machine.event import Event
from actors.machine.evolve import evolve
from actors.machine.numbering import with_number
from actors.machine.outcome import Answered, Failed
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.next_step import next_step
from actors.machine.scheduling.view import UnreadCursor, View
from actors.machine.state import State, open_entry

NOW = 1_700_000_000.0
URL = "https://example.com/hook"


def policy(**members: Any) -> Policy:
    """A configuration; `rate` stands for `rates` with that one alone."""
    if (rate := members.pop("rate", None)) is not None:
        members["rates"] = (rate,)
    return Policy(**({"url": URL} | members))


def retrying(**members: Any) -> Policy:
    return policy(retry=Retry(**members))


def limited(limit: float, burst: int = 1) -> Policy:
    return policy(rate=Rate(limit=limit, burst=burst))


def event(position: int, *, name: str = "", at: float = NOW, body: bytes = b"{}", **members: Any) -> Event:
    return Event(position=position, id=name or f"e{position}", stored_at=at, body=body, **members)


def given_up(reason: str, *events: Event, first: int = 1) -> c.GiveUpEvents:
    """The step that gives up these events, with numbers from `first` on."""
    return c.GiveUpEvents(tuple(with_number(each, first + i) for i, each in enumerate(events)), reason)


def answer(status: int, **headers: str | None) -> Answered:
    """An answer with these headers, in whose names `_` stands for `-`; None leaves one out."""
    given = ((name.replace("_", "-"), value) for name, value in headers.items())
    named = tuple((name, value) for name, value in given if value is not None)
    return Answered(status=status, latency_ms=5.0, headers=named)


NO_ANSWER = Failed(error="timeout", detail="no answer within 15 s", latency_ms=15000.0)


class Actor:
    """The machine of one receiver with its state, and nothing around it."""

    def __init__(self, given: Policy | None = None, *, opened: bool = True) -> None:
        self.policy: Policy | None = given or policy()
        self.state = State(receiver="acme.billing")
        self.facts: list[f.Fact] = []
        if opened:
            self.do(c.OpenReceiver(0, self.policy.dedup_window))
            self.adopt(self.policy)

    def do(self, command: c.Command, *, at: float = NOW, bucket: Bucket | None = None) -> list[f.Fact]:
        facts = decide(self.state, self.policy, command, at, bucket)
        for fact in facts:
            self.state = evolve(self.state, fact)
        self.facts += facts
        return facts

    def adopt(
        self, given: Policy, *, at: float = NOW, above: int = 0, bucket: Bucket | None = None
    ) -> list[f.Fact]:
        """The configuration is another one."""
        self.policy = given
        return self.do(c.Adopt(above, 1), at=at, bucket=bucket)

    def ends(
        self,
        given: Event | None,
        outcome: Answered | Failed,
        *,
        at: float = NOW,
        bucket: Bucket | None = None,
    ) -> list[f.Fact]:
        """An attempt comes back."""
        return self.do(c.RecordOutcome((given,) if given else (), outcome), at=at, bucket=bucket)

    def step(self, now: float = NOW, *, head: Event | None = None, **view: Any) -> s.Step:
        """The next step, in a memory as `view` says. `head` is the oldest event in it, open or not."""
        if head is not None and open_entry(self.state, head.position):
            view["open_in_memory"] = {head.position: head, **view.get("open_in_memory", {})}
            head = None
        if head is not None:
            view.setdefault("waiting", (head,))
        read = {name: view.pop(name) for name in UnreadCursor.__struct_fields__ if name in view}
        view["cursor"] = UnreadCursor(**read)
        return next_step(self.state, self.policy, View(**view), now)
