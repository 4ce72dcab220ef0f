"""Skipping: the oldest event of a receiver becomes a dead letter because somebody says so.

An attempt of it that is under way is awaited, and where it succeeds there is nothing to skip. Otherwise the
event is given up as any other, whether its receiver is paused, parked or disabled.
"""

from actors.machine.commands import GiveUpEvents
from actors.machine.event import Event
from actors.machine.numbering import Numbered, is_repeat, with_number
from actors.machine.state import as_numbered
from actors.runtime.mailbox import MAILBOX_MAX
from actors.runtime.ping import Refusal
from actors.runtime.shell import Shell


async def skip(shell: Shell) -> Numbered:
    """Give the oldest event up, and return once it is on record. Raises Refusal where none waits."""
    pinned = 0
    while (under_way := _under_way(shell)) is not None:
        pinned = pinned or under_way
        await shell.landing()
    found = _known(shell) or await _read(shell)
    if pinned and (found is None or found.position != pinned):
        raise Refusal("nothing_waits", f"{shell.receiver}: the event was settled by the attempt under way")
    if found is None:
        raise Refusal("nothing_waits", f"{shell.receiver} has nothing waiting")
    shell.give_up(GiveUpEvents((found,), "skipped"), shell.host.clock.now())
    index = shell.host.recorder.index
    shell.wake()
    await shell.host.confirmed_to(index)
    return found


def _under_way(shell: Shell) -> int | None:
    """The position of the oldest event, if it is being sent."""
    opened = shell.state.open
    oldest = opened[0].position if opened else min(shell.in_flight, default=0)
    return oldest if oldest in shell.in_flight else None


def _known(shell: Shell) -> Numbered | None:
    """The oldest event, if it is known: with its number, or with the next one."""
    if shell.state.open:
        return as_numbered(shell.state.open[0])
    head = shell.mailbox.head
    return with_number(head, shell.state.frontier.sequence + 1) if head else None


async def _read(shell: Shell) -> Numbered | None:
    """The oldest event of those that lie in the stream alone. Raises Refusal where one is just being sent."""
    after = shell.read_to
    while shell.state.parked and after < shell.seen:
        frontier = shell.state.frontier
        batch = await shell.host.backlog.read(shell.receiver, after, shell.seen, MAILBOX_MAX)
        if shell.state.frontier is not frontier or shell.in_flight:
            raise Refusal("unavailable", f"{shell.receiver} is going on at this moment; ask again")
        if known := _known(shell):
            return known
        fresh = [each for each in batch.events if _is_fresh(shell, each)]
        if fresh:
            return with_number(fresh[0], frontier.sequence + 1)
        after = batch.events[-1].position if batch.events else shell.seen
    return None


def _is_fresh(shell: Shell, event: Event) -> bool:
    frontier = shell.state.frontier
    return event.position > frontier.position and not is_repeat(frontier, event)
