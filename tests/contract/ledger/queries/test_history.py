"""The history of a receiver, from a journal and a bucket whose contents are known."""

from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors.configuration.transform import Transform
from actors.machine import facts as f
from actors.machine.bucket import RateLimit
from angarium.ledger import schema
from angarium.operations.ledger_queries import history
from angarium.operations.ledger_queries.configuration_changes import ChangedMember, changed_members
from angarium.operations.ledger_queries.history import HistoryEntry, history_page, read_history
from angarium.settings import Settings
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.ledger.queries.ask import ask
from tests.support.ledgers import (
    NOW,
    RECEIVER,
    JournalWriter,
    Kept,
    catch_up,
    delivered,
    failed,
    numbered,
    opens,
)

CONFIGURATION = b'{"url": "https://example.com/", "rate": {"limit": 5, "burst": 2}}'


async def test_the_history_says_which_transform_was_in_force(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    transform = Transform(pseudonymize=("/user/id",))
    await journal.flush(opens(), f.TransformSet(receiver=RECEIVER, revision=7, transform=transform, key="k"))
    await journal.flush(f.TransformSet(receiver=RECEIVER, revision=9, transform=transform, key="other"))
    again = delivered(1, NOW + 10, attempt=2)
    events = tuple(replace(each, transform=9, transform_gone=7) for each in again.events)
    await journal.flush(replace(again, events=events))
    await journal.flush(f.TransformSet(receiver=RECEIVER, revision=10))
    raw = delivered(2, NOW + 20, attempt=2)
    await journal.flush(replace(raw, events=tuple(replace(each, transform_gone=9) for each in raw.events)))
    keyed = delivered(3, NOW + 30, attempt=2)
    events = tuple(replace(each, transform=9, transform_gone=9) for each in keyed.events)
    await journal.flush(replace(keyed, events=events))
    await catch_up(js, names, ledger)
    told = await ask(settings, lambda ledger: read_history(ledger, RECEIVER, 0, schema.END_OF_TIME))
    assert [each.what for each in told.entries if each.kind == "transform_set"] == [
        "bodies are shaped by the transform of revision 7",
        "bodies are shaped by the transform of revision 9",
        "bodies are sent as published",
    ]
    assert [each.what for each in told.entries if each.kind == "transform_gone"] == [
        "event 1 was tried again with the transform of revision 9: that of revision 7 is gone",
        "event 2 was tried again as published: that of revision 9 is gone",
        "event 3 was tried again with other pseudonyms: their key was replaced",
    ]


async def test_the_history_is_shown_in_words(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    receivers = StoredConfigurations(js, names, by="token k3f6\x1b")
    await receivers.put(RECEIVER, CONFIGURATION)
    await receivers.put(RECEIVER, b'{"url": "https://example.com/2", "order": "relaxed"}')
    target = f.Retargeted(receiver=RECEIVER, target="url")
    await journal.flush(opens(), target, f.RateSet(receiver=RECEIVER, limit=RateLimit(5.0, 2)))
    await journal.flush(failed(1, NOW + 10))
    await journal.flush(delivered(1, NOW + 400, attempt=2), f.Paused(receiver=RECEIVER, at=NOW + 500))
    # A resume has two facts: of the request, and of the configuration that it changes.
    await journal.flush(
        f.Resumed(receiver=RECEIVER, at=NOW + 600), f.Resumed(receiver=RECEIVER, at=NOW + 600)
    )
    await journal.flush(failed(2, NOW + 700, status=410, gone=True))
    await journal.flush(f.Disabled(receiver=RECEIVER, at=NOW + 650, reason="failing"))
    await journal.flush(f.Resumed(receiver=RECEIVER, at=NOW + 660, by="ada@desk"))
    await journal.flush(f.Disabled(receiver=RECEIVER, at=NOW + 700, reason="gone"))
    await journal.flush(f.Claimed(epoch=2, at=NOW + 800, clean=False, position=0))
    skipped, expired = numbered(3), (numbered(4),)
    await journal.flush(
        f.DeadLettered(receiver=RECEIVER, events=(skipped,), at=NOW + 900, reason="skipped", by="ada@desk"),
        f.DeadLettered(receiver=RECEIVER, events=expired, at=NOW + 901, reason="expired"),
        f.Forgot(receiver=RECEIVER, at=NOW + 950, position=9, next_sequence=7, discarded=2, by="token k3"),
        f.HandshakeStarted(receiver=RECEIVER, at=NOW + 951, key="k"),
        f.HandshakeFailed(receiver=RECEIVER, at=NOW + 952, key="k", error="HTTP 404"),
        f.HandshakeSucceeded(receiver=RECEIVER, at=NOW + 960, key="k", status=200),
        f.HandshakeSucceeded(receiver=RECEIVER, at=NOW + 961, key="k", status=200, per_minute=120),
    )
    await catch_up(js, names, ledger)
    told = await ask(settings, lambda ledger: read_history(ledger, RECEIVER, 0, schema.END_OF_TIME))
    said = [each.what for each in told.entries]
    assert (
        "configuration changed (revision 2): order: strict (default) → relaxed; "
        "rate: 5/second, burst 2 → default; url changed, by token k3f6?" in said
    )
    assert [each for each in said if not each.startswith("configuration")] == [
        "taken up by a node",
        "rate 5 a second, burst 2",
        "accepts events again; it was offline: 6m without a success, 1 failure",
        "paused",
        "resumed: nothing holds it back any more",
        "disabled: it failed for too long",
        "resumed by ada@desk: nothing holds it back any more",
        "disabled: it answered 410",
        "its shard moved to one, from an owner that had died",
        f"event 3 skipped ({skipped.id}), by ada@desk",
        "forgotten: 2 waiting events discarded, by token k3",
        "proved itself",
        "proved itself, and allows 120 requests a minute",
    ]
    assert told.now == "disabled: it answered 410"
    for limit in (1, 2, 5):
        assert await paged(settings, limit) == told.entries


async def test_the_history_has_alerts_and_the_outage_that_a_resume_ended(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    alert = partial(f.AlertRaised, receiver=RECEIVER, number=1)
    resumed = partial(f.Resumed, receiver=RECEIVER)
    await journal.flush(opens(), failed(1, NOW + 10), failed(1, NOW + 20, attempt=2))
    await journal.flush(alert(alert="failing", at=NOW + 70, why="no success since then"))
    await journal.flush(resumed(at=NOW + 610, by="ada@desk"), failed(1, NOW + 620, attempt=3))
    ended = f.AlertRecovered(
        receiver=RECEIVER, number=2, alert="failing", at=NOW + 625, raised_at=NOW + 70, why="it was resumed"
    )
    journal.at = NOW + 630
    await journal.flush(ended, f.Retargeted(receiver=RECEIVER, target="url"))
    await catch_up(js, names, ledger)
    told = await ask(settings, lambda ledger: read_history(ledger, RECEIVER, 0, schema.END_OF_TIME))
    assert [each.what for each in told.entries][1:] == [
        "alert failing: no success since then",
        "resumed by ada@desk: nothing holds it back any more; "
        "it was offline: 10m without a success, 2 failures",
        "the alert failing is over: it was resumed",
        "its URL was changed; its failures are cleared; it failed: 5s without a success, 1 failure",
    ]


@pytest.mark.parametrize("known", [True, False])
async def test_a_removed_receiver_is_shown_as_removed_and_skipped_numbers_are_not_events(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings, *, known: bool
) -> None:
    await journal.flush(
        opens(),
        f.Paused(receiver=RECEIVER, at=NOW + 1),
        f.Removed(receiver=RECEIVER, at=NOW + 2, position=9, next_sequence=14, left_out=13),
    )
    receivers = StoredConfigurations(js, names)
    if known:
        await receivers.put(RECEIVER, CONFIGURATION)
        await receivers.delete(RECEIVER)
    await catch_up(js, names, ledger)
    told = await ask(settings, lambda ledger: read_history(ledger, RECEIVER, 0, schema.END_OF_TIME))
    assert told.now == "removed"
    removed = next(each for each in told.entries if each.kind == "removed")
    assert removed.what == (
        "removed: 0 waiting events discarded; 13 numbers were left out, since a node that crashed may have "
        "given them"
    )
    assert removed.detail == {"discarded": 0, "left_out": 13}


async def configured(settings: Settings) -> list[str]:
    """The sentences of the history that tell of configurations."""
    told = await ask(settings, lambda ledger: read_history(ledger, RECEIVER, 0, schema.END_OF_TIME))
    return [each.what for each in told.entries if each.kind == "configured"]


def timeout(seconds: int, **members: Any) -> bytes:
    return msgspec.json.encode({"url": "https://example.com/", "timeout_s": seconds} | members)


async def test_changes_between_two_reads_keep_their_authors(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    root, token = (
        StoredConfigurations(js, names, by="root@vm"),
        StoredConfigurations(js, names, by="token k3"),
    )
    await journal.flush(opens())
    await root.put(RECEIVER, timeout(5))
    await token.put(RECEIVER, timeout(6, secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]))
    await catch_up(js, names, ledger)
    await token.put(RECEIVER, timeout(7, headers={"x-a": "hidden"}))
    await root.put(RECEIVER, timeout(7, retry={"max_attempts": 3}))
    await root.set_paused(RECEIVER, True, by="ada@desk")
    await token.set_paused(RECEIVER, False, by="token k4")
    await root.delete(RECEIVER)
    await token.put(RECEIVER, timeout(8))
    await catch_up(js, names, ledger)
    assert await configured(settings) == [
        "configuration put (revision 1), by root@vm",
        "configuration changed (revision 2): secrets changed; timeout_s: 5 → 6, by token k3",
        "configuration changed (revision 3): headers changed; secrets changed; timeout_s: 6 → 7, by token k3",
        "configuration changed (revision 4): headers changed; retry.max_attempts: 0 (default) → 3, "
        "by root@vm",
        "configuration changed (revision 5): paused: false (default) → true, by ada@desk",
        "configuration changed (revision 6): paused: true → false, by token k4",
        "configuration removed, by root@vm",
        "configuration put (revision 8), by token k3",
    ]
    told = await ask(settings, lambda ledger: read_history(ledger, RECEIVER, 0, schema.END_OF_TIME))
    detail = next(each.detail for each in told.entries if each.detail.get("revision") == 2)
    assert msgspec.to_builtins(detail) == {
        "revision": 2, "by": "token k3",
        "changes": [
            {"member": "secrets", "old": None, "new": None}, {"member": "timeout_s", "old": "5", "new": "6"},
        ],
    }  # fmt: skip


async def test_a_ledger_that_is_started_later_names_the_authors_of_the_last_changes(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens())
    for seconds in range(1, 4):
        await StoredConfigurations(js, names, by=f"user{seconds}@vm").put(RECEIVER, timeout(seconds))
    await catch_up(js, names, ledger)
    assert await configured(settings) == [
        "configuration put (revision 1), by user1@vm",
        "configuration changed (revision 2): timeout_s: 1 → 2, by user2@vm",
        "configuration changed (revision 3): timeout_s: 2 → 3, by user3@vm",
    ]


async def test_more_changes_than_are_kept_have_no_false_author(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens())
    await StoredConfigurations(js, names, by="root@vm").put(RECEIVER, timeout(1))
    await catch_up(js, names, ledger)
    for seconds in range(2, 14):
        await StoredConfigurations(js, names, by=f"user{seconds}@vm").put(RECEIVER, timeout(seconds))
    await catch_up(js, names, ledger)
    told = await configured(settings)
    assert told[:3] == [
        "configuration put (revision 1), by root@vm",
        "configuration changed (revisions 2 to 5): timeout_s: 1 → 5, the last by user5@vm; "
        "who made the others is not known",
        "configuration changed (revision 6): timeout_s: 5 → 6, by user6@vm",
    ]
    assert told[-1] == "configuration changed (revision 13): timeout_s: 12 → 13, by user13@vm"


async def test_puts_of_another_nats_client_have_an_unknown_author_and_take_no_other(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens())
    token = StoredConfigurations(js, names, by="token k3")
    await js.publish(names.receiver(RECEIVER), timeout(1))
    await catch_up(js, names, ledger)
    await token.put(RECEIVER, timeout(2))
    await js.publish(names.receiver(RECEIVER), timeout(3))
    await js.publish(names.receiver(RECEIVER), timeout(3))
    await token.put(RECEIVER, timeout(4))
    await catch_up(js, names, ledger)
    assert await configured(settings) == [
        "configuration put (revision 1), by an unknown NATS client",
        "configuration changed (revision 2): timeout_s: 1 → 2, by token k3",
        "configuration changed (revision 3): timeout_s: 2 → 3, by an unknown NATS client",
        "configuration put again, unchanged (revision 4), by an unknown NATS client",
        "configuration changed (revision 5): timeout_s: 3 → 4, by token k3",
    ]


async def test_the_history_has_no_claim_from_before_the_receiver(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(f.Claimed(epoch=2, at=NOW - 100, clean=False, position=0))
    await journal.flush(opens(), f.Paused(receiver=RECEIVER, at=NOW + 500))
    await journal.flush(f.Claimed(epoch=3, at=NOW + 800, clean=False, position=0))
    await catch_up(js, names, ledger)
    told = await ask(settings, lambda ledger: read_history(ledger, RECEIVER, 0, schema.END_OF_TIME))
    assert [each.kind for each in told.entries] == ["opened", "paused", "claimed"]


async def test_only_the_page_of_a_long_history_is_put_into_words(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    ledger: Kept,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A receiver may have had a configuration a second, and to compare two takes time."""
    compared: list[str] = []

    def counted(before: str | None, after: str) -> list[ChangedMember]:
        compared.append(after)
        return changed_members(before, after)

    monkeypatch.setattr(history, "changed_members", counted)
    receivers = StoredConfigurations(js, names)
    await journal.flush(opens())
    for number in range(1, 9):
        await receivers.put(RECEIVER, b'{"url": "https://example.com/", "rate": "%d/second"}' % number)
        await catch_up(js, names, ledger)
    page = await ask(settings, lambda ledger: history_page(ledger, RECEIVER, 0, schema.END_OF_TIME, None, 3))
    assert len(page.entries) == 3
    assert len(compared) <= 3


async def paged(settings: Settings, limit: int) -> list[HistoryEntry]:
    entries, start = list[HistoryEntry](), None
    while True:
        query = partial(
            history_page, receiver=RECEIVER, since=0, until=schema.END_OF_TIME, start=start, limit=limit
        )
        page = await ask(settings, query)
        entries += page.entries
        if (start := page.next) is None:
            return entries
