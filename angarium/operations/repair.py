"""Which shards `angarium repair` repairs, what it says of them, and what it does."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from actors.errors import AngariumError
from angarium.connecting import installation, open_jetstream
from angarium.logs import instant
from angarium.settings import Settings
from streams.clock import SystemTime
from streams.fleet.status import refusals, remade
from streams.journal.tails import Mark
from streams.repair import Damage, Gap, accept_loss, check_rights, dead_holders, examine, free_or_of


def shards_of(which: Sequence[str], count: int) -> tuple[int, ...] | None:
    """The shards that were named, None for all that are refused. Raises click.UsageError."""
    named = [part.strip() for text in which for part in text.split(",")]
    if "all" in named:
        if len(named) > 1:
            raise click.UsageError("--accept-loss: name shards, or say all")
        return None
    for text in named:
        if not text.isdecimal() or int(text) >= count:
            raise click.UsageError(f"--accept-loss: {text!r} is no shard; they are 0 to {count - 1}")
    return tuple(dict.fromkeys(map(int, named)))


async def accept(
    settings: Settings, shards: Sequence[int] | None, agreed: Callable[[list[str]], bool]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Repair them if `agreed`; returns what was done, and why some could not be repaired."""
    of = installation(settings)
    names, done, failed = of.names, list[dict[str, Any]](), list[str]()
    async with open_jetstream(settings) as js:
        if shards is None:
            others = await remade(js, names, of.shards)
            shards = range(of.shards) if others else tuple(await refusals(js, names, of.shards))
        damages = [await examine(js, names, shard) for shard in shards]
        damages = [damage for damage in damages if not damage.nothing]
        if not damages or not agreed([line for damage in damages for line in lines(damage)]):
            return [], []
        await check_rights(js, names)
        may_claim = free_or_of(await dead_holders(js, names, [damage.shard for damage in damages]))
        who = f"repair-{settings.node}"
        for damage in damages:
            try:
                found, count = await accept_loss(
                    js, names, damage.shard, who, SystemTime(), may_claim=may_claim, agreed=damage
                )
            except AngariumError as error:
                failed.append(str(error))
            else:
                done.append(document(found, count))
    return done, failed


def lines(damage: Damage) -> list[str]:
    """The loss that would be accepted, in sentences."""
    told = [
        f"shard {damage.shard}: {gap.stream} has lost what followed {_told(gap.kept)}, up to "
        f"{_told(gap.known)} at least; {damage.receivers} receivers"
        for gap in damage.gaps
    ]
    told += [
        f"shard {damage.shard}: {name} was made anew or restored, and is the right one from now on"
        for name in damage.remade
    ]
    if told:
        return told
    if damage.missing and not damage.cut_off:
        return [f"shard {damage.shard}: it is refused for a message whose place was purged since"]
    return [f"shard {damage.shard}: a repair was cut off before its end"]


def _told(mark: Mark) -> str:
    when = f" (stored at {instant(mark.stored_at)})" if mark.stored_at else ""
    return f"message {mark.position}{when}" if mark.position else "its beginning"


def document(damage: Damage, count: int) -> dict[str, Any]:
    """The loss and what was done, as `--json` says it."""
    return {
        "shard": damage.shard,
        "lost": [_lost(gap) for gap in damage.gaps],
        "remade": list(damage.remade),
        "receivers": damage.receivers,
        "brought_back": count,
    }


def _lost(gap: Gap) -> dict[str, Any]:
    return {
        "stream": gap.stream,
        "after": gap.kept.position,
        "after_at": instant(gap.kept.stored_at) if gap.kept.stored_at else None,
        "to": gap.known.position,
        "to_at": instant(gap.known.stored_at) if gap.known.stored_at else None,
    }


def summary(done: list[dict[str, Any]]) -> list[str]:
    """The same for people."""
    repaired = [
        f"shard {each['shard']} is repaired; {each['brought_back']} receivers went back" for each in done
    ]
    return repaired or ["nothing was repaired"]
