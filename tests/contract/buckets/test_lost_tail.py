"""Followers of buckets that lost their tail or were restored: positions are reused.

The server in memory loses a tail here, and the connection with it, as when the real one lost power.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from actors.errors import Unavailable
from angarium.access import Access
from angarium.api.background import jobs
from angarium.api.background.jobs import Jobs
from angarium.settings import Settings
from streams.buckets.api_tokens import Token, TokenStore
from streams.buckets.known_configurations import KnownConfigurations
from streams.buckets.stored_configurations import StoredConfigurations
from streams.buckets.without_secrets import without_secrets
from streams.erasing.erasures import Erasures
from streams.installation.topology import Names
from streams.journal_feed.bucket_reader import BucketReader
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import BEGINNING, BucketPosition
from streams.nats.answers import Page, Stored, StreamInfo
from streams.resending import plan_lock
from tests.contract.buckets.erasing import carry_out
from tests.contract.operations.jobs.jobs import events, replay_job, shown
from tests.contract.resending.settled_events import ONE
from tests.contract.support.power_loss import Powerless, powerless
from tests.support.installation import install
from tests.support.waiting import until, until_true

CHANGED = b'{"url":"https://changed.example/"}'


@pytest.fixture
async def nats() -> AsyncIterator[Powerless]:
    async with powerless() as nats:
        yield nats


@pytest.fixture
async def names(nats: Powerless) -> Names:
    return await install(nats.js, "lost")


def token() -> Token:
    return Token(tenant="acme", scopes=("read",), hash="00", created_at=datetime.now(UTC))


async def test_a_token_that_is_revoked_at_a_lost_position_is_not_valid(nats: Powerless, names: Names) -> None:
    store = TokenStore(nats.js, names)
    await store.create("aaaaaaaaaaaa", token())
    kept = nats.end_of(names.tokens)
    await store.create("bbbbbbbbbbbb", token())
    await store.create("cccccccccccc", token())
    await store.start()
    nats.lose_tail(names.tokens, kept)
    # Until all is read again, what was known stays valid.
    assert store.get("aaaaaaaaaaaa") is not None
    await store.revoke("aaaaaaaaaaaa")
    await until(lambda: store.get("aaaaaaaaaaaa") is None)
    # These are in the bucket no more.
    await until(lambda: store.get("bbbbbbbbbbbb") is store.get("cccccccccccc") is None)
    await store.stop()


async def test_a_connection_that_was_lost_alone_changes_no_token(nats: Powerless, names: Names) -> None:
    store = TokenStore(nats.js, names)
    await store.create("aaaaaaaaaaaa", token())
    await store.start()
    known = store.get("aaaaaaaaaaaa")
    assert known is not None
    nats.reconnect()
    before = store.read_at
    await until(lambda: store.read_at > before)
    # The same object: nothing was read again.
    assert store.get("aaaaaaaaaaaa") is known
    await store.stop()


async def test_a_configuration_at_a_lost_revision_is_in_force(nats: Powerless, names: Names) -> None:
    configurations = KnownConfigurations(nats.js, names)
    await configurations.stored.put("acme.a", b'{"url":"https://a.example/"}')
    kept = nats.end_of(names.receivers)
    await configurations.stored.put("acme.b", b'{"url":"https://b.example/"}')
    await configurations.stored.put("acme.c", b'{"url":"https://c.example/"}')
    await configurations.start()
    policy = configurations.policy("acme.a")
    notified: list[str] = []
    configurations.on_change(notified.append)
    nats.lose_tail(names.receivers, kept)
    await configurations.catch_up()
    assert configurations.policy("acme.a") is policy
    assert not configurations.is_known("acme.b")
    assert configurations.policy("acme.c") is None
    assert sorted(notified) == ["acme.b", "acme.c"]
    nats.lose_tail(names.receivers, kept)
    await configurations.stored.put("acme.a", CHANGED)
    await configurations.catch_up()
    changed = configurations.policy("acme.a")
    assert changed is not None
    assert changed.url == "https://changed.example/"
    await configurations.stop()


async def test_a_pause_at_a_lost_revision_is_seen_by_who_asks_the_leader(
    nats: Powerless, names: Names
) -> None:
    configurations = KnownConfigurations(nats.js, names)
    await configurations.stored.put("acme.z", b'{"url":"https://z.example/"}')
    kept = nats.end_of(names.receivers)
    await configurations.stored.put("acme.a", b'{"url":"https://a.example/"}')
    await configurations.catch_up()
    assert configurations.policy("acme.a") is not None
    nats.lose_tail(names.receivers, kept)
    await configurations.stored.put("acme.a", b'{"url":"https://a.example/","paused":true}')
    assert nats.end_of(names.receivers) == kept + 1
    paused = await configurations.confirm("acme.a")
    assert getattr(paused, "paused", None) is True
    assert configurations.policy("acme.a") is paused


async def test_a_request_to_erase_at_a_lost_position_is_carried_out(nats: Powerless, names: Names) -> None:
    erasures = Erasures(nats.js, names)
    kept = nats.end_of(names.actors)
    for event in ("e1", "e2", "e3"):
        await erasures.request("acme", event, "ops", 1.0)
    assert await carry_out(erasures) == ["e1", "e2", "e3"]
    assert await carry_out(erasures) == []
    nats.lose_tail(names.actors, kept)
    await erasures.request("acme", "late", "ops", 2.0)
    assert await carry_out(erasures) == ["late"]


async def test_a_job_accepted_at_a_lost_position_is_run(
    nats: Powerless, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", 0.3)
    monkeypatch.setattr(jobs, "READ_PLANS_EVERY_S", 0.02)
    to = Access(nats.js, Settings(prefix=names.prefix))
    await StoredConfigurations(nats.js, names).put(ONE, CHANGED)
    wanted = await events(nats.js, names, "a", 3)
    kept = nats.end_of(names.actors)
    working = Jobs(to)
    working.start()

    async def is_done(job: str) -> bool:
        return (await shown(to, job)).state == "done"

    first = await replay_job(to, wanted)
    await until_true(lambda: is_done(first.id))
    nats.lose_tail(names.actors, kept)
    second = await replay_job(to, wanted)
    await until_true(lambda: is_done(second.id))
    await working.stop()


async def test_a_ledger_reads_configurations_at_lost_revisions(nats: Powerless, names: Names) -> None:
    configurations, reader = StoredConfigurations(nats.js, names), BucketReader(nats.js, names)
    await configurations.put("acme.a", b'{"url":"https://a.example/"}')
    kept = nats.end_of(names.receivers)
    await configurations.put("acme.b", b'{"url":"https://b.example/"}')
    place, puts = await reader.read(BEGINNING)
    assert [each.receiver for each in puts] == ["acme.a", "acme.b"]
    assert await reader.read(place) == (place, [])
    nats.lose_tail(names.receivers, kept)
    await configurations.put("acme.a", CHANGED)
    _, puts = await reader.read(place)
    assert (puts[-1].receiver, puts[-1].document) == ("acme.a", without_secrets(CHANGED))
    # The place is stored, and so it is compared by a ledger that was away, too.
    _, puts = await BucketReader(nats.js, names).read(place)
    assert (puts[-1].receiver, puts[-1].document) == ("acme.a", without_secrets(CHANGED))


async def test_a_leader_that_may_be_deposed_does_not_send_it_back(
    nats: Powerless, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await nats.js.publish(names.token("aaaaaaaaaaaa"), b"{}")
    assert isinstance(answer, Stored)
    message = await nats.js.message(names.tokens, answer.position)
    assert message is not None
    place = BucketPosition(nats.js, names.tokens)
    assert await place.compare()
    place.move(Mark(position=message.position, stored_at=message.stored_at))
    nats.reconnect()
    assert place.is_doubtful
    info = await nats.js.existing_stream(names.tokens)

    async def deposed(stream: str) -> StreamInfo:
        return replace(info, last=0, heard_s=60.0)

    with monkeypatch.context() as patch:
        patch.setattr(nats.js, "existing_stream", deposed)
        with pytest.raises(Unavailable, match="may be deposed"):
            await place.compare()
    assert await place.compare()
    assert place.position == answer.position
    nats.lose_tail(names.tokens, answer.position - 1)
    assert not await place.compare()
    assert place.position == 0
    assert not place.is_doubtful


async def test_a_token_is_not_known_by_a_replica_that_lags(
    nats: Powerless, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader names the newest message; the store claims to know no more until it has read that one."""
    store = TokenStore(nats.js, names)
    await store.create("aaaaaaaaaaaa", token())
    await store.start()
    lags, reads = True, 0
    read = nats.js.read

    async def lagging(stream: str, subject: str, sequence: int, batch: int) -> Page:
        nonlocal reads
        reads += 1
        return Page([], 0) if lags else await read(stream, subject, sequence, batch)

    monkeypatch.setattr(nats.js, "read", lagging)
    await store.revoke("aaaaaaaaaaaa")
    stood = store.read_at
    seen = reads
    await until(lambda: reads >= seen + 3)
    assert store.get("aaaaaaaaaaaa") is not None
    assert store.read_at <= stood
    lags = False
    await until(lambda: store.get("aaaaaaaaaaaa") is None)
    await until(lambda: store.read_at > stood)
    await store.stop()
