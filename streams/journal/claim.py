"""Claims a shard in four steps, after which exactly one owner can append to the shard's journal.

    1. put `_owner`, expecting the value that was read; its revision is the epoch
    2. read the journal's last message from the leader; give up if it carries a higher epoch
    3. read `_owner` again; give up if another node has it
    4. append `Claimed`, expecting the message of step 2; if that is no longer the last one, go back to 2

`_owner` alone decides nothing: a whole other ownership may pass between two of these steps. The append
decides, since it makes every append of an earlier owner fail; steps 2 and 3 make sure that the epochs in a
journal only rise. Which node may try at all depends on heartbeats (`streams.fleet.members`), and is not
checked here.
"""

import asyncio
from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import Unavailable
from actors.machine.bucket import Unclean
from actors.machine.facts import Claimed
from streams.clock import Timekeeper
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, check_created, read_checkpoint
from streams.journal.envelope import decode_flush, encode_fact, encode_flush, message_id
from streams.journal.fence import Appended, Overtaken, append
from streams.journal.leadership import info_since, is_last, is_replicated
from streams.journal.refusal import RecordedLoss, check_record, compare_or_refuse
from streams.journal.routing_progress import NOTHING_ROUTED, RoutingProgress
from streams.lost_tails.marks import UNKNOWN_MARKS, Mark, Marks
from streams.nats.answers import StreamInfo
from streams.nats.errors import NotOurs, StreamRecreated
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered, stream_info
from streams.versions import read_versioned

VERSION = 1
RELEASE_TIMEOUT_S = 5.0
"""Time to try a release: without one the next claim is unclean, which costs time but loses nothing."""


class Owner(Struct, frozen=True, kw_only=True):
    """The value of `_owner`.

    - `node`: the node that claimed the shard, at the time `at` by its wall clock.
    - `run`: distinguishes processes that have the same node name one after another; older versions left it
      empty.
    - `heartbeat`: the number of a heartbeat that the node had stored before; 0 from older versions.
    - `released`: the epoch that was released cleanly; 0 if it was given up in another way; None while the
      shard is owned.
    """

    v: int = VERSION
    node: str
    at: float
    run: str = ""
    heartbeat: int = 0
    released: int | None = None


class NotOwned(Struct, frozen=True):
    """The result of a claim if another node owns the shard, or may own it. `why` is for the log."""

    why: str


class Predecessor(Struct, frozen=True):
    """The journal's last flush before the claim: the node that wrote it, its number and its epoch."""

    node: str
    epoch: int
    flush: int
    journal_position: int


class Claim(Struct, frozen=True, kw_only=True):
    """The recorded ownership of a shard.

    - `at`, `boottime`: the same moment by both clocks.
    - `clean`: everything that the previous owner posted is recorded.
    - `position`: no earlier owner can have posted anything beyond it.
    - `unclean`: the last claim that was not clean, this one included.
    - `journal_position`: the place of `Claimed` in the journal.
    - `floor`: the deliveries up to here are released.
    - `routing`: how far the partition is routed.
    - `predecessor`: None if the journal was empty.
    - `marks`: the highest known messages of the streams, including the one at `position`.
    - `replicated`: the streams have replicas, so a leader may have been deposed without knowing it
      (`streams.journal.leadership`).
    """

    shard: int
    epoch: int
    at: float
    boottime: float
    clean: bool
    position: int
    unclean: Unclean | None
    journal_position: int
    floor: int
    routing: RoutingProgress
    predecessor: Predecessor | None
    marks: Marks = UNKNOWN_MARKS
    replicated: bool = False


class ShardRecord(Struct, frozen=True, kw_only=True):
    """The record of a shard: the journal's last flush, or the checkpoint if the journal is empty.

    `routing` is None in the record of a version that did not know it.
    """

    predecessor: Predecessor | None = None
    floor: int = 0
    routing: RoutingProgress | None = NOTHING_ROUTED
    unclean: Unclean | None = None
    marks: Marks = UNKNOWN_MARKS
    blank: bool = False

    @property
    def epoch(self) -> int:
        return self.predecessor.epoch if self.predecessor else 0


class ClaimAttempt(Struct, frozen=True, kw_only=True):
    """A claim after its first step. `holder` and `revision` are those of `_owner` before it."""

    shard: int
    node: str
    epoch: int
    holder: Owner | None
    revision: int
    resumes: int
    began_at: float
    accepts_loss: bool

    def follows_cleanly(self, record: ShardRecord) -> bool:
        """True if everything that the last owner posted is recorded."""
        if record.predecessor is None:
            return record.blank and not self.revision
        released = self.holder is not None and self.holder.released == record.epoch
        return released or (record.predecessor.node, record.epoch) == (self.node, self.resumes)


_owner = msgspec.json.Decoder(Owner)


async def claim(
    js: JetStream,
    names: Names,
    shard: int,
    node: str,
    time: Timekeeper,
    *,
    may_claim: Callable[[Owner | None], bool],
    run: str = "",
    heartbeat: int = 0,
    resumes: int = 0,
    accepts_loss: bool = False,
) -> Claim | NotOwned:
    """Claim the shard. This continues until it is decided, waits while NATS is away, and may be cancelled.

    `resumes` is the epoch of a claim of this process whose memory is complete (`Journal.reclaim`): if the
    journal still ends with it, everything that was posted is recorded or in memory.
    With `accepts_loss`, the streams are not compared with the marks, which stay as they are.
    Raises `StreamRecreated`, `NotOurs` and `NewerVersion`, and `ApiError` if a stream does not exist.
    """
    began_at = asyncio.get_running_loop().time()
    if not accepts_loss:
        await check_record(js, names, shard)
    holder, revision = await read_owner(js, names, shard)
    if not may_claim(holder):
        return NotOwned(f"{holder.node} holds it" if holder else "it may not be claimed now")
    mine = msgspec.json.encode(Owner(node=node, at=time.wall(), run=run, heartbeat=heartbeat))
    put = await append(js, names.actors, names.actor_keys.owner(shard), mine, expected=revision)
    if isinstance(put, Overtaken):
        return NotOwned("another node was faster")
    attempt = ClaimAttempt(
        shard=shard, node=node, epoch=put.position, holder=holder, revision=revision, resumes=resumes,
        began_at=began_at, accepts_loss=accepts_loss,
    )  # fmt: skip
    while True:
        drafted = await draft_claim(js, names, attempt, time)
        if isinstance(drafted, NotOwned):
            return drafted
        appended = await _append_claimed(js, names, node, drafted)
        if isinstance(appended, Appended):
            return replace(drafted, journal_position=appended.position)


async def draft_claim(
    js: JetStream, names: Names, attempt: ClaimAttempt, time: Timekeeper
) -> Claim | NotOwned:
    """Steps 2 and 3: the claim as it will be once it is recorded."""
    record = await read_shard_record(js, names, attempt.shard)
    if record.routing is None:
        raise NotOurs(
            f"the journal of shard {attempt.shard} was written by an older Angarium; stop all nodes, and run "
            f"angarium setup once"
        )
    marks = record.marks
    if not attempt.accepts_loss:
        refusal = RecordedLoss(node=attempt.node, at=time.wall(), stream="")
        await compare_or_refuse(js, names, attempt.shard, attempt.epoch, marks, refusal)
    clean = attempt.follows_cleanly(record)
    deliveries = await deliveries_at_claim(js, names, attempt, clean)
    if not attempt.accepts_loss:
        # This must come before the end of a recreated stream is recorded as a known one.
        check_created(await read_checkpoint(js, names, attempt.shard) or Checkpoint(), [deliveries])
        end = Mark(position=deliveries.last, stored_at=deliveries.last_at)
        marks = marks.raised(Marks(deliveries=end))
    if (await read_owner(js, names, attempt.shard))[1] != attempt.epoch:
        return NotOwned("another node claimed it meanwhile")
    if record.epoch > attempt.epoch:
        if not await still_owns_epoch(js, names, attempt.shard, attempt.epoch):
            return NotOwned("another node claimed it meanwhile")
        # The node that wrote this put `_owner` after us, yet ours is the last put: it was another bucket.
        raise StreamRecreated(
            f"{names.actors} is not the bucket that the journal of shard {attempt.shard} names: its last "
            f"claim has revision {attempt.epoch}, the journal's {record.epoch}; see angarium doctor"
        )
    unclean = record.unclean
    known = unclean.position if unclean else 0
    position = max(deliveries.last, record.floor, record.marks.deliveries.position, known)
    actors = await stream_info(js, names.actors)
    at, boottime = time.wall(), time.boottime()
    return Claim(
        shard=attempt.shard,
        epoch=attempt.epoch,
        at=at,
        boottime=boottime,
        clean=clean,
        position=position,
        unclean=unclean if clean else Unclean(attempt.epoch, position, at),
        journal_position=0,
        floor=record.floor,
        routing=record.routing,
        predecessor=record.predecessor,
        marks=marks,
        replicated=is_replicated(deliveries) or is_replicated(actors),
    )


async def deliveries_at_claim(js: JetStream, names: Names, attempt: ClaimAttempt, clean: bool) -> StreamInfo:
    """The deliveries, including everything that an earlier owner may have posted without a record.

    That owner had lost its lease before this claim began. A clean claim needs no proof: everything is
    recorded, or is below the last unclean claim.
    """
    if clean:
        return await stream_info(js, names.deliveries)
    return await info_since(js, names.deliveries, attempt.began_at)


async def release(js: JetStream, names: Names, claim: Claim, node: str) -> bool:
    """Release the shard, after everything is recorded and written. False if the release is not recorded.

    It is tried for `RELEASE_TIMEOUT_S` only, since a node that stops must end: without a release the next
    claim is unclean.
    """
    data = msgspec.json.encode(Owner(node=node, at=claim.at, released=claim.epoch))
    try:
        async with asyncio.timeout(RELEASE_TIMEOUT_S):
            put = await append(
                js, names.actors, names.actor_keys.owner(claim.shard), data, expected=claim.epoch
            )
    except TimeoutError:
        return False
    return isinstance(put, Appended)


async def give_up_claim(
    js: JetStream, names: Names, shard: int, node: str, *, may_claim: Callable[[Owner | None], bool]
) -> bool:
    """Give up a shard that this process only holds by `_owner`; returns whether there was such a shard.

    A claim that failed later (recovery failed), or an ownership that ended without a release (attempts in
    flight, no answer), would otherwise keep all nodes out for as long as this one lives. The next claim is
    unclean. Call this only if the shard is neither owned nor being claimed.
    Raises `Unavailable` if a deposed leader answered: it may not know that our claim is the last one.
    """
    holder, revision = await read_owner(js, names, shard)
    if holder is None or holder.node != node or holder.released is not None or not may_claim(holder):
        if not await is_last(js, names.actor_keys.proof(shard), names.actor_keys.owner(shard), revision):
            raise Unavailable(f"the owner of shard {shard} is not the one that was read")
        return False
    data = msgspec.json.encode(Owner(node=node, at=holder.at, released=0))
    return isinstance(
        await append(js, names.actors, names.actor_keys.owner(shard), data, expected=revision), Appended
    )


async def still_owns(js: JetStream, names: Names, claim: Claim) -> bool:
    """True if `_owner` certainly still has the value that this claim put."""
    return await still_owns_epoch(js, names, claim.shard, claim.epoch)


async def still_owns_epoch(js: JetStream, names: Names, shard: int, epoch: int) -> bool:
    """Check the epoch of `_owner` by a write: a deposed leader would not know about a later claim."""
    if (await read_owner(js, names, shard))[1] != epoch:
        return False
    return await is_last(js, names.actor_keys.proof(shard), names.actor_keys.owner(shard), epoch)


async def read_owner(js: JetStream, names: Names, shard: int) -> tuple[Owner | None, int]:
    """The value of `_owner` and its revision, from the leader; a deleted one has a revision, too.

    Raises `NewerVersion` and `NotOurs`.
    """
    subject = names.actor_keys.owner(shard)
    message = await retry_until_answered(lambda: js.last_message(names.actors, subject))
    if message is None:
        return None, 0
    owner = read_versioned(_owner, message.data, VERSION, subject) if message.data else None
    return owner, message.position


async def read_shard_record(js: JetStream, names: Names, shard: int) -> ShardRecord:
    """The record of the shard as of now, from the leader."""
    subject = names.journal_of(shard)
    last = await retry_until_answered(lambda: js.last_message(names.journal, subject))
    if last is not None:
        flush = decode_flush(last.data, f"message {last.position} of {names.journal}")
        predecessor = Predecessor(flush.node, flush.epoch, flush.flush, last.position)
        return ShardRecord(
            predecessor=predecessor,
            floor=flush.floor,
            routing=flush.routing,
            unclean=flush.unclean,
            marks=flush.marks,
        )
    checkpoint = await read_checkpoint(js, names, shard)
    if checkpoint is None:
        return ShardRecord(blank=True)
    return ShardRecord(
        floor=checkpoint.floor,
        routing=checkpoint.routing,
        unclean=checkpoint.unclean,
        marks=checkpoint.known,
    )


async def _append_claimed(js: JetStream, names: Names, node: str, drafted: Claim) -> Appended | Overtaken:
    """Step 4: the first flush of the new epoch, numbered 0."""
    unclean = drafted.unclean or Unclean(0, 0, 0.0)
    fact = Claimed(
        epoch=drafted.epoch,
        at=drafted.at,
        clean=drafted.clean,
        position=drafted.position,
        unclean_epoch=unclean.epoch,
        unclean_position=unclean.position,
        unclean_at=unclean.at,
    )
    data = encode_flush(
        node=node,
        epoch=drafted.epoch,
        flush=0,
        floor=drafted.floor,
        routing=drafted.routing,
        at=drafted.at,
        unclean=drafted.unclean,
        marks=drafted.marks,
        facts=[encode_fact(fact)],
    )
    return await append(
        js,
        names.journal,
        names.journal_of(drafted.shard),
        data,
        expected=drafted.predecessor.journal_position if drafted.predecessor else 0,
        message_id=message_id(drafted.shard, drafted.epoch, 0),
    )
