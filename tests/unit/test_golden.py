"""Stored formats of version 1, which must stay readable, with all members in use.

The files under `golden/` are as they lie in the streams. A member that is added later needs a default, and
leaves them alone; a file is only ever added, for a new `v`.
"""

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from actors.configuration.transform import Transform
from actors.machine.bucket import Bucket, RateLimit, Unclean
from actors.machine.facts import (
    AlertRaised,
    AlertRecovered,
    AlertsPublished,
    AnyFact,
    AttemptFailed,
    Burial,
    Buried,
    Claimed,
    DeadLettered,
    Delivered,
    Disabled,
    EventDropped,
    EventRefused,
    EventsNumbered,
    Forgot,
    HandshakeFailed,
    HandshakeStarted,
    HandshakeSucceeded,
    Missing,
    Opened,
    PaceSet,
    Parked,
    Paused,
    Pinged,
    RateSet,
    RemovalSet,
    Removed,
    Repaired,
    Resumed,
    Retargeted,
    Started,
    Throttled,
    TransformSet,
    TurnedAway,
    Unparked,
    WindowSet,
)
from actors.machine.numbering import Frontier, Numbered
from actors.machine.pace.pace import HeaderLimit, InFlightLimit, LoweredRate, Pace, ProbedRate
from actors.machine.state import Alert, Counters, Handshake, OpenEvent, RecordedTransform, Returning, State
from streams.journal.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from streams.journal.envelope import Flush, decode_flush, encode_fact, encode_flush
from streams.journal.parked_receivers import ParkedPart
from streams.journal.routing_progress import RoutingProgress
from streams.journal.snapshots import Snapshot, snapshot_of
from streams.lost_tails.marks import Mark, Marks, SourceOffset
from streams.resending.job import Job
from streams.resending.redrive_job import RedriveJobPlan
from streams.resending.redrive_lock import RedrivePlan
from streams.resending.replay_lock import EventsToResend, ReplayPlan

GOLDEN = Path(__file__).parent / "golden"

AT = 1_800_000_000.25
WHO = "acme.billing"
BUCKET = Bucket(tokens=1.5, at=AT, epoch=7)
EVENT = Numbered(sequence=3, position=41, id="evt:3", stored_at=AT - 1, again="replay-1", source=17)
FAILED = AttemptFailed(
    receiver=WHO, events=(EVENT,), at=AT, attempt=2, status=422, latency_ms=12.5, bucket=BUCKET,
    error="HTTP 422", next_at=AT + 4, until=AT + 2, rejected=True,
)  # fmt: skip

FACTS_1: tuple[AnyFact, ...] = (
    Claimed(epoch=7, at=AT, clean=False, position=40, unclean_epoch=7, unclean_position=40, unclean_at=AT),
    Opened(receiver=WHO, at=AT, position=30, window=128),
    Retargeted(receiver=WHO, target="00112233445566ff"),
    RateSet(receiver=WHO, limit=RateLimit(0.5, 4), bucket=BUCKET),
    WindowSet(receiver=WHO, size=64, above=40),
    EventsNumbered(receiver=WHO, events=(EVENT,)),
    Started(receiver=WHO, events=(EVENT,), at=AT, bucket=BUCKET),
    Delivered(receiver=WHO, events=(EVENT,), at=AT, attempt=1, status=200, latency_ms=9.5, bucket=BUCKET),
    FAILED,
    Throttled(receiver=WHO, events=(), at=AT, attempt=1, status=429, until=AT + 30, kind="ping"),
    DeadLettered(
        receiver=WHO, events=(EVENT,), at=AT, reason="rejected", attempts=5, status=422, bucket=BUCKET
    ),
    Buried(receiver=WHO, position=41),
    EventDropped(receiver=WHO, position=42, id="evt:3"),
    Parked(receiver=WHO, at=AT, waiting_since=AT - 9),
    Unparked(receiver=WHO, at=AT),
    Missing(receiver=WHO, at=AT, first=43, last=44, next_sequence=6, bucket=BUCKET),
    Paused(receiver=WHO, at=AT),
    Resumed(receiver=WHO, at=AT),
    Disabled(receiver=WHO, at=AT, reason="gone"),
    Pinged(receiver=WHO, at=AT, bucket=BUCKET),
    Removed(receiver=WHO, at=AT, position=44, next_sequence=7, discarded=1, bucket=BUCKET),
    EventRefused(receiver="acme.nobody", position=45, reason="unknown_receiver", at=AT),
    Buried(receiver=WHO, positions=(46, 47)),
    Forgot(receiver=WHO, at=AT, position=48, next_sequence=9, discarded=2, bucket=BUCKET),
    TurnedAway(
        receiver="_unknown", at=AT,
        events=(Burial(position=49, reason="unknown_receiver", receiver="acme.nobody"),),
    ),
    Repaired(receiver=WHO, at=AT, position=40, next_sequence=522, dropped=(41,), bucket=BUCKET),
)  # fmt: skip

FACTS: tuple[AnyFact, ...] = (*FACTS_1, RemovalSet(receiver=WHO, at=AT, removal=3))

ALERT = AlertRaised(
    receiver=WHO, alert="failing", number=5, at=AT, since=AT - 60, why="no success for 60 s; HTTP 503"
)
LATER_FACTS: tuple[AnyFact, ...] = (
    ALERT,
    AlertRecovered(
        receiver=WHO, alert="dead_letters", number=6, at=AT, raised_at=AT - 90, why="none for 1 h",
    ),
    AlertsPublished(receiver=WHO, number=6),
)  # fmt: skip
"""Facts that came when version 4 was in use; they have a file of their own."""

HANDSHAKE_FACTS: tuple[AnyFact, ...] = (
    HandshakeStarted(receiver=WHO, at=AT, key="00112233445566ff", bucket=BUCKET),
    HandshakeFailed(
        receiver=WHO, at=AT, key="00112233445566ff", status=429, latency_ms=9.5, error="HTTP 429",
        next_at=AT + 30, until=AT + 30, ours=True,
    ),
    HandshakeSucceeded(
        receiver=WHO, at=AT, key="00112233445566ff", status=200, latency_ms=9.5, per_minute=120
    ),
)  # fmt: skip

TRANSFORM = Transform(keep=("/a", "/items/*/sku"), drop=("/a/b",), pseudonymize=("/a/c",))
SHAPED_EVENT = replace(EVENT, transform=9, transform_gone=7)
TRANSFORM_FACTS: tuple[AnyFact, ...] = (
    TransformSet(receiver=WHO, revision=9, transform=TRANSFORM, key="00112233445566ff"),
    Delivered(receiver=WHO, events=(SHAPED_EVENT,), at=AT, attempt=2, status=200, latency_ms=9.5),
)  # fmt: skip

PACE = Pace(
    told=HeaderLimit(per_second=0.2, until=AT + 30),
    lowered=LoweredRate(per_second=5.0, limit=10.0, at=AT - 10),
    in_flight=InFlightLimit(limit=8.5, at=AT - 9, base_ms=12.5),
    probed=ProbedRate(
        proven=9.0, ceiling=10.0, low=8.0, at=AT - 8, lowered_at=AT - 9, before=11.0, base_ms=12.5, slow=True,
    ),
)  # fmt: skip
PACE_FACTS: tuple[AnyFact, ...] = (
    PaceSet(
        receiver=WHO, at=AT, pace=PACE, per_second=0.2, in_flight=8, limited_by="headers",
        in_flight_by="concurrency",
    ),
)  # fmt: skip

OFFLINE_FACTS: tuple[AnyFact, ...] = (
    AttemptFailed(
        receiver=WHO, events=(), at=AT, attempt=1, status=503, latency_ms=9.5, bucket=BUCKET,
        kind="offline_ping", error="HTTP 503", next_at=AT + 4, until=AT + 4,
    ),
    Delivered(
        receiver=WHO, events=(), at=AT + 4, attempt=1, status=200, latency_ms=9.5, bucket=BUCKET,
        kind="offline_ping", returns_at=AT + 5.5,
    ),
)  # fmt: skip

FLUSH_1 = Flush(
    v=1, node="node-a", epoch=7, flush=12, floor=39, at=AT, unclean=Unclean(7, 40, AT), facts=FACTS_1
)
MARKS = Marks(
    deliveries=Mark(position=48, stored_at=AT - 1), events=Mark(position=17, stored_at=AT - 2),
    source_offsets=(SourceOffset(above=9, offset=1_000_000_033),),
)  # fmt: skip
FLUSH_2 = replace(FLUSH_1, v=2, marks=MARKS, facts=FACTS)
FLUSH_3 = replace(FLUSH_2, v=3, routed=16)
FLUSH_4 = replace(FLUSH_3, v=4, parked_tenants={"acme": 9})
ALERTS = replace(FLUSH_4, facts=LATER_FACTS)
HANDSHAKES = replace(FLUSH_4, facts=HANDSHAKE_FACTS)
TRANSFORMS = replace(FLUSH_4, facts=TRANSFORM_FACTS)
PACES = replace(FLUSH_4, facts=PACE_FACTS)
OFFLINE = replace(FLUSH_4, facts=OFFLINE_FACTS)
HALVED = replace(FAILED, events=(EVENT, replace(EVENT, sequence=4, position=42, id="evt:4")), halved=True)
FLUSH = replace(FLUSH_4, v=5, facts=(HALVED,))

STATE = State(
    receiver=WHO,
    frontier=Frontier(position=44, sequence=6, source=17, window=bytes(range(24)), size=128, change=(60, 64)),
    open=(
        OpenEvent(
            sequence=5, position=43, id="evt:5", stored_at=AT - 5, again="replay-1", source=16, attempts=3,
            failures=2, rejections=1, next_at=AT + 2, status=503,
        ),
    ),
    burials=(Burial(position=41, reason="expired", sequence=3, attempts=9, status=500),),
    opened=True,
    removed_at=AT - 100,
    limit=RateLimit(0.5, 4),
    bucket=BUCKET,
    target="00112233445566ff",
    throttled_until=AT + 30,
    throttles=2,
    backoff_until=AT + 2,
    failing_since=AT - 50,
    consecutive_failures=4,
    parked=True,
    waiting_since=AT - 9,
    paused=True,
    disabled="failing",
    last=FAILED,
    counters=Counters(delivered=1, failed_attempts=2, throttled=3, dead=4, discarded=5, duplicates=6),
)  # fmt: skip

SNAPSHOT_1 = Snapshot(v=1, as_of=99, state=STATE)
WITH_ALERTS = snapshot_of(
    State(
        receiver=WHO, alerts=(Alert(kind="failing", raised_at=AT, raised=True),), alert_number=5,
        unpublished_alerts=(ALERT,), dead_letter_at=AT - 1,
    ),
    100,
)  # fmt: skip
GROUPED = replace(STATE, open=(replace(STATE.open[0], post=(5, 6), halved=True),), joined=3)
SNAPSHOT = snapshot_of(GROUPED, 99)

WITH_HANDSHAKE = Snapshot(
    as_of=101,
    state=State(
        receiver=WHO,
        handshake=Handshake(
            key="00112233445566ff", verified=True, per_minute=120, failures=2, failing_since=AT - 9,
            failed_at=AT - 1,
            error="HTTP 404", next_at=AT + 2,
        ),
    ),
)  # fmt: skip

WITH_TRANSFORM = Snapshot(
    as_of=102,
    state=State(
        receiver=WHO, transform=9, pseudonym_key="00112233445566ff",
        open=(OpenEvent(sequence=3, position=41, id="evt:3", stored_at=AT - 1, attempts=1, transform=9),),
        burials=(Burial(position=40, reason="transform", sequence=2, transform="7 ffeeddccbbaa9988"),),
        transforms=(RecordedTransform(revision=9, transform=TRANSFORM, key="00112233445566ff"),),
    ),
)  # fmt: skip

WITH_PACE = Snapshot(as_of=103, state=State(receiver=WHO, pace=PACE))
WITH_RETURN = Snapshot(
    as_of=104, state=State(receiver=WHO, returning=Returning(begins_at=AT + 5.5, successes=3))
)

CHECKPOINT = Checkpoint(
    journal_position=99,
    floor=39,
    routed=16,
    parked_tenants={"acme": 9},
    needed=41,
    holder=WHO,
    parked_parts=(98, 99),
    unclean=Unclean(7, 40, AT),
    created={"ANGARIUM_JOURNAL": "2027-01-15T08:00:00.123456789Z"},
)

CHECKPOINT_3 = replace(CHECKPOINT, v=3, parked_tenants={})
CHECKPOINT_2 = replace(CHECKPOINT_3, v=2, routed=UNSET)
CHECKPOINT_1 = replace(CHECKPOINT_2, v=1, parked={WHO: AT + 30, "acme.crm": None}, parked_parts=())

PART = ParkedPart(as_of=99, receivers={WHO: AT + 30, "acme.crm": None})

PLAN_1 = RedrivePlan(v=1, run="0c1d", step=3, at=AT, held=True, stream_end=41, letters=(7, 9), unsure=(2,))
PLAN = replace(PLAN_1, v=2, nonce="5e1f")

JOB = Job(id="j1", began_at=AT)
REPLAY_PLAN = ReplayPlan(
    v=1, run="0c1d", step=3, at=AT, held=True, unfinished=True, created="2027-01-15T08:00:00Z",
    events=EventsToResend(begin=4, until=9, removal=5), done_to=7, remaining=2, stream_end=41, sent=3,
    again="replay-0a1b", nonce="5e1f", pace_s=0.5, due_at=AT + 1, api_job=JOB,
)  # fmt: skip
REDRIVE_JOB_PLAN = RedriveJobPlan(
    v=1, run="0c1d", step=3, at=AT, held=True, unfinished=True, api_job=JOB, receivers="acme.*",
    reasons=("expired",), since=AT - 60, until=AT, done_to=7, end=12, receivers_end=21, seen=5, page=(8, 9),
    sent=4,
)  # fmt: skip


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes().rstrip(b"\n")


def test_a_flush_of_version_1() -> None:
    assert decode_flush(golden("flush-v1.json"), "golden") == FLUSH_1


def test_a_flush_of_version_2() -> None:
    assert decode_flush(golden("flush-v2.json"), "golden") == FLUSH_2


def test_a_flush_of_version_3() -> None:
    assert decode_flush(golden("flush-v3.json"), "golden") == FLUSH_3


def test_a_flush_of_version_4() -> None:
    assert decode_flush(golden("flush-v4.json"), "golden") == FLUSH_4


def test_a_flush_of_version_5() -> None:
    assert decode_flush(golden("flush-v5.json"), "golden") == FLUSH


def test_a_flush_with_alerts() -> None:
    assert decode_flush(golden("alerts-v4.json"), "golden") == ALERTS


def test_a_flush_with_handshakes() -> None:
    assert decode_flush(golden("handshakes-v4.json"), "golden") == HANDSHAKES


def test_a_snapshot_with_a_handshake() -> None:
    assert msgspec.json.decode(golden("snapshot-handshake-v1.json"), type=Snapshot) == WITH_HANDSHAKE


def test_a_flush_with_transforms() -> None:
    assert decode_flush(golden("transforms-v4.json"), "golden") == TRANSFORMS


def test_a_snapshot_with_a_transform() -> None:
    assert msgspec.json.decode(golden("snapshot-transform-v1.json"), type=Snapshot) == WITH_TRANSFORM


def test_a_flush_with_paces() -> None:
    assert decode_flush(golden("paces-v4.json"), "golden") == PACES


def test_a_snapshot_with_a_pace() -> None:
    assert msgspec.json.decode(golden("snapshot-pace-v1.json"), type=Snapshot) == WITH_PACE


def test_a_flush_with_offline_pings() -> None:
    assert decode_flush(golden("offline-v4.json"), "golden") == OFFLINE


def test_a_snapshot_with_a_return() -> None:
    assert msgspec.json.decode(golden("snapshot-return-v1.json"), type=Snapshot) == WITH_RETURN


def test_a_snapshot_with_alerts() -> None:
    assert msgspec.json.decode(golden("snapshot-alerts-v1.json"), type=Snapshot) == WITH_ALERTS


def test_a_snapshot_of_version_1() -> None:
    assert msgspec.json.decode(golden("snapshot-v1.json"), type=Snapshot) == SNAPSHOT_1


def test_a_snapshot_of_version_2() -> None:
    assert msgspec.json.decode(golden("snapshot-v2.json"), type=Snapshot) == SNAPSHOT


def test_a_checkpoint_of_version_1() -> None:
    assert decode_checkpoint(golden("checkpoint-v1.json"), "golden") == CHECKPOINT_1


def test_a_checkpoint_of_version_2() -> None:
    assert decode_checkpoint(golden("checkpoint-v2.json"), "golden") == CHECKPOINT_2


def test_a_checkpoint_of_version_3() -> None:
    assert decode_checkpoint(golden("checkpoint-v3.json"), "golden") == CHECKPOINT_3


def test_a_checkpoint_of_version_4() -> None:
    assert decode_checkpoint(golden("checkpoint-v4.json"), "golden") == CHECKPOINT


def test_a_part_of_the_parked_of_version_1() -> None:
    assert msgspec.json.decode(golden("parked-v1.json"), type=ParkedPart) == PART


def test_a_plan_of_a_redrive_of_version_1() -> None:
    assert msgspec.json.decode(golden("redrive-v1.json"), type=RedrivePlan) == PLAN_1


def test_a_plan_of_a_redrive_of_version_2() -> None:
    assert msgspec.json.decode(golden("redrive-v2.json"), type=RedrivePlan) == PLAN


def test_a_plan_of_a_replay_of_version_1() -> None:
    assert msgspec.json.decode(golden("replay-v1.json"), type=ReplayPlan) == REPLAY_PLAN


def test_a_plan_of_a_redrive_job_of_version_1() -> None:
    assert msgspec.json.decode(golden("redrive-job-v1.json"), type=RedriveJobPlan) == REDRIVE_JOB_PLAN


def written_flush(flush: Flush, *, groups: bool) -> bytes:
    return encode_flush(
        node=flush.node, epoch=flush.epoch, flush=flush.flush, floor=flush.floor,
        routing=RoutingProgress(routed=16, parked_tenants=flush.parked_tenants),
        at=flush.at, unclean=flush.unclean, marks=flush.marks,
        facts=[encode_fact(fact) for fact in flush.facts], groups=groups,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "written"), [
    ("flush-v4.json", written_flush(FLUSH_4, groups=False)),
    ("alerts-v4.json", written_flush(ALERTS, groups=False)),
    ("handshakes-v4.json", written_flush(HANDSHAKES, groups=False)),
    ("transforms-v4.json", written_flush(TRANSFORMS, groups=False)),
    ("paces-v4.json", written_flush(PACES, groups=False)),
    ("snapshot-pace-v1.json", msgspec.json.encode(WITH_PACE)),
    ("offline-v4.json", written_flush(OFFLINE, groups=False)),
    ("snapshot-return-v1.json", msgspec.json.encode(WITH_RETURN)),
    ("flush-v5.json", written_flush(FLUSH, groups=True)),
    ("snapshot-transform-v1.json", msgspec.json.encode(WITH_TRANSFORM)),
    ("snapshot-handshake-v1.json", msgspec.json.encode(WITH_HANDSHAKE)),
    ("snapshot-v1.json", msgspec.json.encode(snapshot_of(STATE, 99))),
    ("snapshot-alerts-v1.json", msgspec.json.encode(WITH_ALERTS)),
    ("snapshot-v2.json", msgspec.json.encode(SNAPSHOT)),
    ("checkpoint-v4.json", encode_checkpoint(CHECKPOINT)),
    ("parked-v1.json", msgspec.json.encode(PART)),
    ("redrive-v2.json", msgspec.json.encode(PLAN)),
    ("replay-v1.json", msgspec.json.encode(REPLAY_PLAN)),
    ("redrive-job-v1.json", msgspec.json.encode(REDRIVE_JOB_PLAN)),
])  # fmt: skip
def test_the_latest_version_is_what_is_written(name: str, written: bytes) -> None:
    """A change that shows here is one that older nodes meet, too."""
    assert written == golden(name)


def test_every_kind_of_fact_is_there() -> None:
    shown = (*FACTS, *LATER_FACTS, *HANDSHAKE_FACTS, *TRANSFORM_FACTS, *PACE_FACTS)
    assert {type(fact) for fact in shown} == set(get_args(AnyFact))
