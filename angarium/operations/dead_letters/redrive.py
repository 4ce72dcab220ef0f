"""Sends dead letters to their receivers again."""

import asyncio
import uuid
from collections.abc import Callable

from msgspec import Struct

from angarium.access import Access
from angarium.operations.dead_letters.pages import (
    PAGE_LETTERS,
    Progress,
    Wanted,
    letter_pages,
    missing,
    no_progress,
)
from angarium.operations.failures import operation
from streams.clock import SystemTime
from streams.dead_letters.letters import DeadLetters
from streams.resending.plan_lock import LockHeld
from streams.resending.redrive import Redrive, Redriven
from streams.resending.redrive_lock import RedriveLock


class RedrivenLetters(Struct, frozen=True):
    """The fate of the letters that were sent, and the named ones that do not exist."""

    done: Redriven
    missing: list[int]


@operation
async def redrive(
    access: Access,
    wanted: Wanted,
    limit: int | None = None,
    *,
    unsure_too: bool = False,
    progress: Progress = no_progress,
    waiting: Callable[[float, float], None] = lambda began_at, wait_s: None,
    patience_s: float = 0.0,
) -> RedrivenLetters:
    """Send the letters again, at most `limit`. Fails as a conflict while another redrive runs.

    If another one runs, it is tried again for `patience_s`. `waiting` is called if an earlier redrive was
    interrupted, with when it began and how long to wait for it.
    """
    seen: set[int] = set()
    lock = await _locked(access, waiting, patience_s)
    work = Redrive(access.js, access.names, lock, unsure_too=unsure_too)
    await work.begin()
    seen.update(work.done.finished)
    with progress("redriving") as on_progress:
        async for page in letter_pages(DeadLetters(access.js, access.names), wanted, on_progress):
            seen.update(letter.position for letter in page)
            while page and work.done.redriven != limit and not work.done.stopped:
                room = PAGE_LETTERS if limit is None else limit - work.done.redriven
                await work.send(page[:room])
                page = page[room:]
            if work.done.redriven == limit or work.done.stopped:
                break
    await work.end()
    return RedrivenLetters(work.done, missing(wanted, seen))


async def _locked(access: Access, waiting: Callable[[float, float], None], patience_s: float) -> RedriveLock:
    """The lock of all redrives. Raises `LockHeld` if others have it for that time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + patience_s
    while True:
        lock = RedriveLock(access.js, access.names, uuid.uuid4().hex, SystemTime(), by=access.by)
        try:
            await lock.acquire(lambda plan, wait_s: waiting(plan.at, wait_s))
        except LockHeld:
            if loop.time() >= until:
                raise
        else:
            return lock
