"""Putting over an existing configuration: members that were not given up stay, like another user's change."""

from typing import Any

import pytest

from angarium.operations.configurations.get import ShownConfiguration, get_configuration
from angarium.operations.configurations.proposal import PutResult
from angarium.operations.configurations.put import NewConfiguration, put_configuration
from angarium.operations.failures import NotDone
from streams.buckets.stored_configurations import StoredConfigurations
from streams.nats.jetstream import JetStream
from tests.contract.support.configurations import NAME, URL, Configurations
from tests.support.installation import install

OLD, NEW, OTHER = (f"whsec_{letter * 32}" for letter in "ABC")
FULL = {
    "url": URL, "order": "relaxed", "rate": "10/s", "paused": True, "events": ["order.>"],
    "headers": {"X-Team": "hush-header"}, "secrets": [NEW, OLD],
}  # fmt: skip


class Putting(Configurations):
    """`put`, as the commands call it, for one receiver."""

    async def put(self, members: dict[str, Any] | None, **said: Any) -> PutResult:
        done = await put_configuration(self.to, NAME, NewConfiguration(members=members, **said))
        assert isinstance(done, PutResult), done
        return done

    async def refused(self, members: dict[str, Any] | None, **said: Any) -> NotDone:
        failure = await put_configuration(self.to, NAME, NewConfiguration(members=members, **said))
        assert isinstance(failure, NotDone)
        return failure


@pytest.fixture
async def bench(js: JetStream, prefix: str) -> Putting:
    return Putting(js, await install(js, prefix), prefix)


async def test_a_new_one_is_signed_with_a_secret_of_its_own(bench: Putting) -> None:
    done = await bench.put({"url": URL})
    assert (done.replaced, done.secrets, done.changes) == (False, 1, [])
    assert await bench.stored() == {"url": URL, "secrets": [done.secret]}


async def test_a_shown_configuration_can_be_put_again(bench: Putting) -> None:
    await bench.store(FULL)
    shown = await get_configuration(bench.to, NAME)
    assert isinstance(shown, ShownConfiguration)
    assert shown.problems == []
    assert "hush" not in str(shown)
    done = await bench.put(shown.members)
    assert (done.replaced, done.secrets, done.secret, done.changes) == (True, 2, None, [])
    assert await bench.stored() == FULL


async def test_each_loss_is_named_and_refused(bench: Putting) -> None:
    before = await bench.store(FULL)
    failure = await bench.refused({"url": URL, "secrets": [NEW]})
    assert failure.kind == "invalid"
    text = failure.sentence
    for member in (
        "order: relaxed",
        "rate: 10/second",
        "paused: true",
        "events: order.>",
        "headers.x-team: …",
    ):
        assert member in text
    assert "secrets: 2 → 1" in text
    assert "--replace" in text
    assert OLD not in text
    assert "hush" not in text
    found = await StoredConfigurations(bench.js, bench.names).get(NAME)
    assert found is not None
    assert found.revision == before


async def test_replace_says_that_it_is_meant_and_keeps_the_secrets(bench: Putting) -> None:
    await bench.store(FULL)
    done = await bench.put({"url": URL}, replace=True)
    assert [each.member for each in done.changes] == ["order", "rate", "paused", "events", "headers.x-team"]
    assert await bench.stored() == {"url": URL, "secrets": [NEW, OLD]}
    await bench.put({"url": URL, "secrets": []}, replace=True)
    assert await bench.stored() == {"url": URL, "secrets": []}


async def test_another_value_is_not_a_loss(bench: Putting) -> None:
    await bench.store(FULL)
    done = await bench.put(FULL | {"order": "strict", "paused": False, "rate": None})
    assert list(map(str, done.changes)) == [
        "order: relaxed → strict", "rate: 10/second → none", "paused: true → false",
    ]  # fmt: skip


async def test_an_unsigned_receiver_stays_unsigned(bench: Putting) -> None:
    await bench.store({"url": URL})
    done = await bench.put({"url": URL, "paused": True})
    assert (done.secret, done.secrets) == (None, 0)
    assert await bench.stored() == {"url": URL, "paused": True}


async def test_a_secret_is_changed_with_an_overlap(bench: Putting) -> None:
    await bench.store({"url": URL, "secrets": [OLD]})
    added = await bench.put(None, add_secret="")
    assert added.secrets == 2
    assert (await bench.stored())["secrets"] == [added.secret, OLD]
    dropped = await bench.put(None, drop_old_secrets=True)
    assert (dropped.secrets, dropped.secret) == (1, None)
    assert await bench.stored() == {"url": URL, "secrets": [added.secret]}


async def test_a_secret_may_be_given_and_change_at_once(bench: Putting) -> None:
    await bench.store(FULL)
    done = await bench.put(None, add_secret=OTHER, drop_old_secrets=True)
    assert (done.secret, list(map(str, done.changes))) == (None, ["secrets: 2 → 1 (1 new)"])
    assert await bench.stored() == FULL | {"secrets": [OTHER]}


async def test_an_existing_secret_comes_to_the_front(bench: Putting) -> None:
    await bench.store(FULL)
    await bench.put(None, add_secret=OLD)
    assert await bench.stored() == FULL | {"secrets": [OLD, NEW]}


async def test_a_new_url_that_nodes_may_not_post_to_is_noted(bench: Putting) -> None:
    away = "https://127.0.0.1/hook"
    assert "angarium dev allows it" in str((await bench.put({"url": away})).notes)
    assert (await bench.put({"url": away, "paused": True})).notes == []
    assert len((await bench.put({"url": away + "s", "paused": True})).notes) == 1
    (private,) = (await bench.put({"url": "https://10.0.0.1/", "paused": True})).notes
    assert "angarium dev" not in private.with_flags


async def test_secrets_alone_need_a_receiver(bench: Putting) -> None:
    failure = await bench.refused(None, add_secret="")
    assert failure.kind == "not_found"
    assert f"there is no receiver {NAME} yet; give its configuration" in failure.sentence


async def test_flags_that_are_only_a_part_say_how_to_change_one(bench: Putting) -> None:
    await bench.store(FULL)
    partial = await bench.refused({"rate": "5/s"})
    assert partial.kind == "invalid"
    assert f"save the output of angarium receiver get {NAME}, change it" in partial.sentence
    wrong = await bench.refused({"url": URL, "secrets": OLD, "order": "any"})
    assert wrong.kind == "invalid"
    assert len(wrong.problems) == 2
    assert any("secrets: must be a list of strings" in each for each in wrong.problems)


async def test_an_unreadable_configuration_has_nothing_to_lose(bench: Putting) -> None:
    await bench.store([1])
    done = await bench.put({"url": URL})
    assert (done.replaced, done.secrets) == (True, 1)


@pytest.mark.parametrize("before", [FULL, None, "removed"], ids=["there", "not there", "removed"])
async def test_a_configuration_that_another_user_put_meanwhile_is_not_overwritten(
    bench: Putting, before: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before == "removed":
        await bench.store(FULL)
        await StoredConfigurations(bench.js, bench.names).delete(NAME)
    elif before is not None:
        await bench.store(before)
    theirs = {"url": "https://example.com/theirs"}
    with bench.overtaken(monkeypatch, theirs):
        failure = await bench.refused(FULL)
    assert failure.kind == "conflict"
    assert "was changed at the same moment by another user" in failure.text
    assert await bench.stored() == theirs


async def test_a_removed_receiver_can_be_put_again(bench: Putting) -> None:
    await bench.store(FULL)
    await StoredConfigurations(bench.js, bench.names).delete(NAME)
    done = await bench.put({"url": URL})
    assert (done.replaced, done.changes) == (False, [])


async def test_another_transform_comes_with_a_note_about_tried_events(
    bench: Putting,
) -> None:
    """Retries have the body of the first attempt."""
    drop = {"url": URL, "transform": {"drop": ["/a"]}}
    assert (await bench.put(drop)).notes == []
    (note,) = (await bench.put({"url": URL, "transform": {"drop": ["/b"]}})).notes
    assert note.text == (
        "events that were tried already keep the transform of their first attempt, or have none"
    )
    assert note.with_flags == f"{note.text}; angarium receiver skip {NAME} gives the first of them up"
    assert (await bench.put({"url": URL, "transform": {"drop": ["/b"]}, "order": "relaxed"})).notes == []
    assert (await bench.put({"url": URL}, replace=True)).notes == []
    assert len((await bench.put(drop)).notes) == 1
