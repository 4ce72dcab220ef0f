"""A model of one timed event: all interleavings of its writes and of crashes.

The event lies in the events stream, is stored as an entry, is published again when it is due, and is routed
when its entry is taken (`docs/decisions/delivery-at-a-time.md`). Every write is first *under way*, and is
applied at any later moment or never, also after its owner died. Each rule has a switch: without it, `explore`
finds a state that breaks a promise.
"""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

RULES = (
    "an entry needs an empty subject",
    "routed waits for the entry",
    "a header decides, not a clock",
    "a due event takes its entry",
    "taking expects the entry",
    "the stub names who took it",
    "cancelling expects the entry",
    "an entry of long after is void",
    "the stub outlives the event",
)
CRASHES_MAX, DUE_EVENTS_MAX, UNDER_WAY_MAX, CANCELS_MAX = 2, 3, 3, 2

ENTRY, VOID, TAKEN, CANCELLED = "entry", "void", "taken", "cancelled"


class Write(Struct, frozen=True, order=True):
    """A write under way: an `entry`, a `due` event, `taken` by the due event at `place`, or `cancelled`.

    `version`: of the entry that it expects.
    """

    kind: str
    place: int = 0
    version: int = 0


class State(Struct, frozen=True):
    """The world. Due events have the places 1, 2, …; `subject` is what lies where the entry belongs.

    - `passed`: by memory, the entry is stored; `next_place`: the due event that the router comes to next.
    - `recorded_passed`, `recorded`: the same by the journal.
    - `copied`: the places of the due events that were copied (0: the event itself).
    - `cancelled`: the canceller's write was stored, so it may be told.
    """

    subject: str = ""
    holder: int = 0
    version: int = 0
    under_way: tuple[Write, ...] = ()
    due_events: int = 0
    is_due: bool = False
    is_gone: bool = False
    passed: bool = False
    next_place: int = 1
    recorded_passed: bool = False
    recorded: int = 0
    copied: frozenset[int] = frozenset()
    cancelled: bool = False
    crashes: int = 0
    cancels: int = 0


def explore(without: str = "") -> tuple[str, int]:
    """Explore every state; returns the first broken promise or an empty text, and the number of states."""
    seen, to_visit = {State()}, [State()]
    while to_visit:
        state = to_visit.pop()
        following = list(_steps(state, without))
        if problem := _broken(state, following):
            return problem, len(seen)
        for each in following:
            if each not in seen:
                seen.add(each)
                to_visit.append(each)
    return "", len(seen)


def _broken(state: State, following: list[State]) -> str:
    if len(state.copied) > 1:
        return "delivered twice"
    if state.cancelled and state.copied:
        return "cancelled and delivered"
    if not following and not state.copied and not state.cancelled:
        return "lost"
    return ""


def _steps(state: State, without: str) -> Iterator[State]:
    yield from _applied(state, without)
    yield from _of_the_owner(state, without)
    yield from _of_the_canceller(state)
    if state.passed and not state.recorded_passed:
        yield replace(state, recorded_passed=True)
    if state.passed and state.next_place - 1 > state.recorded:
        yield replace(state, recorded=state.next_place - 1)
    if not state.is_due:
        yield replace(state, is_due=True)
    if state.crashes < CRASHES_MAX:
        yield replace(
            state, crashes=state.crashes + 1, passed=state.recorded_passed, next_place=state.recorded + 1
        )
    yield from _aged(state, without)


def _aged(state: State, without: str) -> Iterator[State]:
    """The event leaves its stream by age once it is settled there; later, the stub goes."""
    routed = state.holder <= state.recorded if state.subject == TAKEN else state.subject == CANCELLED
    if state.recorded_passed and routed and not state.is_gone:
        yield replace(state, is_gone=True)
    is_stub = state.subject in (TAKEN, CANCELLED)
    if is_stub and state.recorded_passed and routed and (
        state.is_gone or without == "the stub outlives the event"
    ):  # fmt: skip
        yield replace(state, subject="", holder=0)


def _sent(state: State, write: Write) -> Iterator[State]:
    if len(state.under_way) < UNDER_WAY_MAX and state.under_way.count(write) < 2:
        yield replace(state, under_way=tuple(sorted((*state.under_way, write))))


def _of_the_owner(state: State, without: str) -> Iterator[State]:
    if not state.passed and not state.is_gone:
        if without == "a header decides, not a clock" and state.is_due:
            yield replace(state, copied=state.copied | {0}, passed=True)
        yield from _sent(state, Write("entry"))
        if state.subject not in ("", VOID) or without == "routed waits for the entry":
            yield replace(state, passed=True)
    if state.is_due and state.subject == ENTRY and state.due_events < DUE_EVENTS_MAX:
        yield from _sent(state, Write("due"))
    if state.passed and state.next_place <= state.due_events:
        yield from _met(state, state.next_place, without)


def _met(state: State, place: int, without: str) -> Iterator[State]:
    """The router comes to a due event."""
    copied = replace(state, copied=state.copied | {place}, next_place=place + 1)
    dropped = replace(state, next_place=place + 1)
    if without == "a due event takes its entry":
        yield copied
    elif state.subject == ENTRY:
        yield from _sent(state, Write(TAKEN, place, state.version))
    elif state.subject == TAKEN and without == "the stub names who took it":
        yield dropped if place in state.copied else copied
        if state.crashes:  # A later owner does not know what the one before copied.
            yield copied
    else:
        yield copied if state.subject == TAKEN and state.holder == place else dropped


def _of_the_canceller(state: State) -> Iterator[State]:
    if state.subject == ENTRY and state.cancels < CANCELS_MAX:
        for sent in _sent(state, Write(CANCELLED, 0, state.version)):
            yield replace(sent, cancels=state.cancels + 1)


def _applied(state: State, without: str) -> Iterator[State]:
    for number, write in enumerate(state.under_way):
        rest = (*state.under_way[:number], *state.under_way[number + 1 :])
        left = replace(state, under_way=rest)
        match write.kind:
            case "entry":
                if state.subject == "" or without == "an entry needs an empty subject":
                    is_void = state.is_gone and without != "an entry of long after is void"
                    yield replace(
                        left, subject=VOID if is_void else ENTRY, holder=0, version=state.version + 1
                    )
                else:
                    yield left
            case "due":
                yield replace(left, due_events=min(state.due_events + 1, DUE_EVENTS_MAX))
            case kind:
                free = (
                    "taking expects the entry" if kind == TAKEN else "cancelling expects the entry"
                ) == without
                if free or (state.subject == ENTRY and state.version == write.version):
                    yield replace(
                        left, subject=kind, holder=write.place, version=state.version + 1,
                        cancelled=state.cancelled or kind == CANCELLED,
                    )  # fmt: skip
                else:
                    yield left
