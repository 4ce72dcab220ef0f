"""Lines that commands print: for a waiting event, an erasure that found nothing, a new backlog."""

from typing import Any

import pytest
from msgspec.structs import replace

from angarium import quantities
from angarium.cli.events.erase import summary
from angarium.cli.events.job import cells as job_cells
from angarium.cli.ledger_queries.event import headline
from angarium.cli.receivers.table import cells
from angarium.operations.control_requests.held_receivers import HeldReceiver
from angarium.operations.events.erase import ErasureStatus
from angarium.operations.jobs.plans import JobDocument
from angarium.operations.receiver_list.listing import ReceiverFindings, listed
from angarium.operations.receiver_list.throughput import Bottleneck

DELIVERY: dict[str, Any] = {
    "receiver": "acme.billing", "sequence": 17, "type": "order.created", "again": False, "state": "open",
    "reason": None, "published_at": "2026-01-31T12:00:00.000Z",
    "stored_at": "2026-01-31T12:00:00.000Z", "ended_at": None, "attempts": [],
}  # fmt: skip
LOOK = "(angarium inspect acme.billing shows what it waits for), stored 2026-01-31T12:00:00.000Z"


@pytest.mark.parametrize(
    ("attempts", "waits"),
    [
        ([], "waits for its first attempt"),
        ([{"attempt": 2, "next_at": None}], "waits for attempt 3"),
        (
            [{"attempt": 2, "next_at": "9999-01-31T12:00:00.000Z"}],
            "waits for attempt 3, due 9999-01-31T12:00:00.000Z",
        ),
        ([{"attempt": 2, "next_at": "2026-01-31T12:00:05.000Z"}], "attempt 3 is due or under way"),
    ],
)
def test_an_event_that_is_not_settled_says_what_it_waits_for(
    attempts: list[dict[str, Any]], waits: str
) -> None:
    line = headline(DELIVERY | {"attempts": attempts})
    assert line == f"acme.billing #17 (order.created): {waits} {LOOK}"


@pytest.mark.parametrize(
    ("attempts", "following"), [([], "its first attempt"), ([{"attempt": 1, "next_at": None}], "attempt 2")]
)
def test_an_event_whose_receiver_gets_nothing_says_why(
    attempts: list[dict[str, Any]], following: str
) -> None:
    line = headline(DELIVERY | {"attempts": attempts}, HeldReceiver("disabled, it answered 410", "resume"))
    assert line == (
        f"acme.billing #17 (order.created): waits for {following}, stored 2026-01-31T12:00:00.000Z: "
        "disabled, it answered 410; to continue, run angarium receiver resume acme.billing"
    )


@pytest.mark.parametrize(
    ("state", "letter", "ends"),
    [
        ("delivered", None, "delivered 2026-01-31T12:00:01.000Z"),
        ("dead", None, "dead letter (expired) 2026-01-31T12:00:01.000Z"),
        (
            "dead",
            3,
            "dead letter 3 (expired) 2026-01-31T12:00:01.000Z; to send it again: angarium dead redrive 3",
        ),
        ("discarded", None, "discarded (expired) 2026-01-31T12:00:01.000Z"),
    ],
)
def test_a_settled_event_is_told_in_the_order_of_time(state: str, letter: int | None, ends: str) -> None:
    settled = {"state": state, "reason": "expired", "ended_at": "2026-01-31T12:00:01.000Z"}
    line = headline(DELIVERY | settled, letter=letter)
    assert line == f"acme.billing #17 (order.created): stored 2026-01-31T12:00:00.000Z, {ends}"


def test_a_job_began_at_a_time_that_every_command_takes() -> None:
    job = JobDocument(
        id="replay.acme.billing.0123456789abcdef", kind="replay", tenant="acme", receiver="acme.billing",
        origin="http", by="token k3f6", state="done", began_at="2026-01-31T12:00:05.123Z", ended_at=None,
        looked_at=5, total=5, sent=4,
        left_out={}, kept_since=None, purged=False, again=None, why=None,
    )  # fmt: skip
    _, state, began, looked_at, sent, by = job_cells(job)
    assert (state, began, looked_at, sent, by) == ("done", "2026-01-31T12:00Z", "5 of 5", 4, "token k3f6")
    assert quantities.parse_time(str(began), 0.0) == quantities.parse_time("2026-01-31T12:00:00Z", 0.0)


ERASED = ErasureStatus(
    tenant="acme", event="order-7", requested_by="me", requested_at="", done=True, done_at="", waits_for=None,
    events=1, deliveries=2, discarded=1, dead_letters=0, journal_messages=0,
)  # fmt: skip


def test_an_erasure_that_found_nothing_does_not_claim_that_it_erased() -> None:
    assert summary(ERASED).startswith("erased order-7 of acme: 1 event, 2 deliveries (1 of them waiting)")
    nothing = summary(replace(ERASED, events=0, deliveries=0, discarded=0))
    assert nothing.startswith(
        "nothing to erase: no stream has the event order-7 of acme; the request is recorded"
    )


@pytest.mark.parametrize(
    ("limited_by", "age_s", "empty_in", "limit"),
    [
        ("unknown", 5, "?", "?"),
        ("rate", 5, "?", "its rate"),
        ("rate", 60, "never", "its rate"),
        ("pace", 5, "?", "its pace"),
        ("node", 60, "never", "our nodes"),
        ("pause", 5, "never", "a pause"),
        (None, 1, None, None),
    ],
)
def test_nothing_is_said_to_last_without_a_measurement_of_a_whole_span(
    limited_by: Bottleneck | None, age_s: int, empty_in: str | None, limit: str | None
) -> None:
    now = quantities.parse_time("2026-01-31T12:00:00Z", 0.0) + age_s
    row = replace(
        listed(ReceiverFindings("acme.billing", b'{"url": "https://example.com/"}')),
        waiting=3, oldest_at="2026-01-31T12:00:00.000Z", limited_by=limited_by, empty_in_s=None,
    )  # fmt: skip
    assert cells(row, ("empty in", "limit"), now) == [empty_in, limit]


def test_a_backlog_that_goes_is_listed_with_the_time_until_it_is_empty() -> None:
    row = replace(listed(ReceiverFindings("acme.billing", b'{"url": "https://example.com/"}')), waiting=3)
    assert cells(replace(row, empty_in_s=240.0), ("empty in",), 0.0) == ["4m"]
    assert cells(replace(row, waiting=0, empty_in_s=0.0), ("empty in",), 0.0) == [None]
