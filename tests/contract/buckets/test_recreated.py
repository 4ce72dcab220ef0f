"""Buckets that are recreated while all connections stay open: positions start again at 1."""

from datetime import UTC, datetime

import pytest

from angarium.api.background import jobs
from angarium.api.background.jobs import Jobs
from streams.buckets.api_tokens import Token, TokenStore
from streams.buckets.stored_configurations import StoredConfigurations
from streams.erasing.erasures import Erasures
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.resending import plan_lock
from tests.contract.buckets.erasing import carry_out
from tests.contract.journal.recording import recreate
from tests.contract.operations.jobs.jobs import access, events, replay_job, shown
from tests.contract.resending.settled_events import ONE
from tests.contract.resending.windows import LEASE_S
from tests.support.waiting import until, until_true


async def test_a_token_that_is_revoked_in_a_new_bucket_at_a_known_position_is_not_valid(
    js: JetStream, names: Names
) -> None:
    token = Token(tenant="acme", scopes=("read",), hash="00", created_at=datetime.now(UTC))
    store = TokenStore(js, names)
    for each in ("aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc", "dddddddddddd"):
        await store.create(each, token)
    await store.revoke("dddddddddddd")
    await store.start()
    assert store.get("dddddddddddd") is None
    await recreate(js, names, names.tokens)
    # It is restored from a file, then one is revoked; all this is at positions that are known.
    for each in ("aaaaaaaaaaaa", "bbbbbbbbbbbb"):
        await store.create(each, token)
    await store.revoke("aaaaaaaaaaaa")

    def seen() -> bool:
        assert store.get("dddddddddddd") is None  # What was revoked stays revoked meanwhile.
        return store.get("aaaaaaaaaaaa") is store.get("cccccccccccc") is None

    await until(seen)
    assert store.get("bbbbbbbbbbbb") == token
    before = store.read_at
    await until(lambda: store.read_at > before)
    await store.stop()


async def test_a_request_to_erase_in_a_new_bucket_is_carried_out(js: JetStream, names: Names) -> None:
    erasures = Erasures(js, names)
    for event in ("e1", "e2", "e3"):
        await erasures.request("acme", event, "ops", 1.0)
    assert await carry_out(erasures) == ["e1", "e2", "e3"]
    assert await carry_out(erasures) == []
    await recreate(js, names, names.actors)
    await erasures.request("acme", "late", "ops", 2.0)
    assert await carry_out(erasures) == ["late"]


async def test_a_job_that_is_accepted_in_a_new_bucket_is_run(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", LEASE_S)
    monkeypatch.setattr(jobs, "READ_PLANS_EVERY_S", 0.02)
    to = access(js, names)
    await StoredConfigurations(js, names).put(ONE, b'{"url": "https://example.com/"}')
    wanted = await events(js, names, "a", 3)
    working = Jobs(to)
    working.start()

    async def is_done(job: str) -> bool:
        return (await shown(to, job)).state == "done"

    first = await replay_job(to, wanted)
    await until_true(lambda: is_done(first.id))
    await recreate(js, names, names.actors)
    second = await replay_job(to, wanted)
    await until_true(lambda: is_done(second.id))
    await working.stop()
