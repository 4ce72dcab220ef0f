"""The result of a redrive, as `angarium dead redrive` reports it."""

from collections.abc import Iterator, Sequence
from typing import Any

from actors.times_as_text import instant_text
from angarium.cli.dead_letters.selection import counted
from streams.resending.redrive import (
    GONE,
    ID_TAKEN,
    MALFORMED,
    REMOVED,
    TOO_LARGE,
    UNKNOWN_RECEIVER,
    UNSURE,
    Redriven,
)

WHY_LEFT = {
    GONE: "cannot be redriven, since only the headers could be kept",
    MALFORMED: "cannot be redriven, since the event is malformed (angarium dead show says why)",
    REMOVED: "stay, since their receiver was removed after the redrive began; redrive them again if it "
    "is there and has to get them",
    TOO_LARGE: "cannot be redriven, since the stream no longer accepts events of that size",
    UNSURE: "may have been redriven by an interrupted command, and its copies are purged; "
    "drop them, or redrive them with --unsure",
    ID_TAKEN: "cannot be redriven now, since another publisher used their message id for something "
    "else; redrive them again in two minutes, and check who may publish there",
}


def report(done: Redriven) -> dict[str, Any]:
    """The report of a redrive, for JSON."""
    return {
        "redriven": done.redriven, "finished": done.finished, "left": done.left_out,
        "stopped": done.stopped or None,
    }  # fmt: skip


def summary(done: Redriven) -> Iterator[str]:
    """The result of a redrive for people."""
    yield f"redriven {counted(done.redriven)}"
    if done.finished:
        yield f"{counted(len(done.finished))} had been redriven by an interrupted command; now dropped here"
    for why, positions in done.left_out.items():
        named = ", ".join(map(str, positions[:5])) + (", …" if len(positions) > 5 else "")
        yield f"{counted(len(positions))} ({named}) {_why_left(why, positions, done)}"


def _why_left(why: str, positions: Sequence[int], done: Redriven) -> str:
    """The rest of the sentence that letters stay."""
    if why != UNKNOWN_RECEIVER:
        return WHY_LEFT[why]
    stay = "stays" if len(positions) == 1 else "stay"
    names = sorted(done.unknown_receivers)
    if len(names) == 1:
        return (
            f"{stay}, since there is no receiver {names[0]}: put it first (angarium receiver put {names[0]})"
        )
    named = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return f"{stay}, since there are no receivers {named}: put them first (angarium receiver put)"


def waiting(began_at: float, wait_s: float) -> str:
    """The note that a redrive waits for another one's end."""
    began = instant_text(began_at)
    return f"a redrive started {began} was interrupted; waiting {wait_s:.0f} s to be sure that it has ended"
