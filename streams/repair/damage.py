"""The damage to a shard: which tails its streams lost, found without changing anything."""

from msgspec import Struct

from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, read_checkpoint
from streams.journal.refusal import is_missing, read_recorded_loss
from streams.lost_tails.comparison import find_loss, has_message
from streams.lost_tails.marks import NO_MARK, Mark, higher_mark
from streams.nats.answers import StreamInfo
from streams.nats.errors import RepairError
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered, stream_info
from streams.repair.stream_history import StreamHistory, last_unchanged_mark, read_history

NOT_COMPLETE = Mark(position=1 << 62)
"""A mark whose message no stream ever has: while it is recorded, no node runs the shard."""


class LostTail(Struct, frozen=True, kw_only=True):
    """A loss: everything after `kept`, which the stream still has, up to `known` at least."""

    stream: str
    kept: Mark
    known: Mark


class Damage(Struct, frozen=True, kw_only=True):
    """The damage to a shard's streams.

    - `gaps`: the losses.
    - `recreated`: streams that were recreated or restored.
    - `missing`: no gap was found, but the shard is refused because of a message that is still missing: its
      position was purged since then.
    """

    shard: int
    gaps: tuple[LostTail, ...]
    recreated: tuple[str, ...]
    receivers: int
    cut_off: bool = False
    missing: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.gaps or self.recreated or self.cut_off or self.missing)


async def find_damage(js: JetStream, names: Names, shard: int) -> Damage:
    """Find the losses that a repair would accept. Raises `NewerVersion` and `NotOurs`."""
    return (await find_damage_with_history(js, names, shard))[0]


async def find_damage_with_history(js: JetStream, names: Names, shard: int) -> tuple[Damage, StreamHistory]:
    """The damage, and what the journal says of the streams."""
    history, recorded = await read_history(js, names, shard), await read_recorded_loss(js, names, shard)
    checkpoint = await read_checkpoint(js, names, shard) or Checkpoint()
    infos = {name: await stream_info(js, name) for name in names.streams}
    recreated = tuple(
        name for name, info in infos.items() if checkpoint.created.get(name, info.created) != info.created
    )
    gaps: list[LostTail] = []
    for stream, latest, marks in (
        (names.deliveries, history.latest.deliveries, history.deliveries),
        (names.events, history.latest.events, history.events),
    ):
        concerned = recorded is not None and recorded.mark != NOT_COMPLETE and recorded.stream == stream
        suspect = recorded.mark if recorded is not None and concerned else NO_MARK
        if stream in recreated:
            kept = Mark(position=infos[stream].first - 1)
            gaps.append(LostTail(stream=stream, kept=kept, known=higher_mark(suspect, latest)))
        elif (gap := await _find_gap(js, infos[stream], latest, suspect, marks)) is not None:
            gaps.append(gap)
    keys = await retry_until_answered(lambda: js.subjects(names.actors, names.actor_keys.snapshots_in(shard)))
    damage = Damage(
        shard=shard, gaps=tuple(gaps), recreated=recreated,
        receivers=sum(names.actor_keys.shard_and_actor(each) is not None for each in keys),
        cut_off=recorded is not None and recorded.mark == NOT_COMPLETE,
        missing=not gaps and recorded is not None and await is_missing(js, recorded),
    )  # fmt: skip
    return damage, history


async def _find_gap(
    js: JetStream, info: StreamInfo, latest: Mark, suspect: Mark, marks: set[Mark]
) -> LostTail | None:
    """Find the loss of the stream. `suspect` is the message that the recorded refusal names.

    If its position is empty, although the stream has messages before and after it, that does not disprove the
    loss.
    """
    for mark in sorted({suspect, latest} - {NO_MARK}, key=lambda each: each.position):
        gone = await find_loss(js, info.name, mark) is not None
        if not gone and (mark.position < info.first or await has_message(js, info.name, mark)):
            continue
        kept, differs = await last_unchanged_mark(js, info.name, marks, mark)
        if gone or differs or mark == suspect:
            return LostTail(stream=info.name, kept=kept, known=higher_mark(suspect, latest))
    return None


def check_agreed(agreed: Damage, found: Damage) -> None:
    """Raise `RepairError` if more was lost than the operator agreed to."""
    known = {gap.stream: gap for gap in agreed.gaps}
    for gap in found.gaps:
        shown = known.get(gap.stream)
        if (
            shown is None
            or gap.kept.position < shown.kept.position
            or gap.known.position > shown.known.position
        ):
            break
    else:
        if set(found.recreated) <= set(agreed.recreated):
            return
    raise RepairError(
        f"shard {found.shard} is not repaired: more was lost than you accepted; run the command again"
    )
