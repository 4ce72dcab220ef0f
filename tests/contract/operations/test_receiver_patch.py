"""Changing single members: other members stay, another user's change is not overwritten, secrets rotate."""

import time
from datetime import datetime
from typing import Any

import pytest

from angarium.delivery.signing import public_key
from angarium.logs import HIDDEN
from angarium.operations.configurations.get import ShownConfiguration, get_configuration
from angarium.operations.configurations.patch import patch_configuration
from angarium.operations.configurations.proposal import PutResult
from angarium.operations.configurations.put import NewConfiguration, put_configuration
from angarium.operations.configurations.rotate import OVERLAP_MAX_S, RotatedSecret, rotate_secret
from angarium.operations.failures import NotDone
from streams.buckets.stored_configurations import StoredConfigurations
from streams.nats.jetstream import JetStream
from tests.contract.support.configurations import NAME, URL, Configurations
from tests.support.installation import install

A, B, C = (f"whsec_{letter * 32}" for letter in "ABC")
FULL = {
    "url": URL, "order": "relaxed", "rate": {"limit": 10, "burst": 20}, "events": ["order.>"],
    "headers": {"X-Team": "hush-header"}, "secrets": [B, A], "retry": {"base_s": 1, "cap_s": 60},
}  # fmt: skip


class Patching(Configurations):
    """The operations that change members of one receiver."""

    async def patched(self, change: dict[str, Any], **said: Any) -> list[str]:
        done = await patch_configuration(self.to, NAME, change, **said)
        assert isinstance(done, PutResult), done
        return list(map(str, done.changes))

    async def refused(self, change: dict[str, Any], **said: Any) -> NotDone:
        failure = await patch_configuration(self.to, NAME, change, **said)
        assert isinstance(failure, NotDone)
        return failure

    async def rotated(self, overlap_s: float) -> RotatedSecret:
        done = await rotate_secret(self.to, NAME, overlap_s)
        assert isinstance(done, RotatedSecret), done
        return done


@pytest.fixture
async def bench(js: JetStream, prefix: str) -> Patching:
    return Patching(js, await install(js, prefix), prefix)


@pytest.mark.parametrize(
    ("change", "changes", "members"),
    [
        (
            {"rate": {"limit": 5}},
            ["rate: 10/second, burst 20 → 5/second, burst 20"],
            {"rate": {"limit": 5, "burst": 20}},
        ),
        (
            {"rate": "20/minute"},
            ["rate: 10/second, burst 20 → 20/minute, burst 20"],
            {"rate": {"limit": 20, "per": "minute", "burst": 20}},
        ),
        ({"rate": None}, ["rate: 10/second, burst 20 → default"], {"rate": None}),
        (
            {"rate": {"burst": None}},
            ["rate: 10/second, burst 20 → 10/second, burst 10"],
            {"rate": {"limit": 10}},
        ),
        ({"timeout_s": 5}, ["timeout_s: 15 (default) → 5"], {"timeout_s": 5}),
        (
            {"retry": {"cap_s": None}},
            ["retry.cap_s: 60 → 3600 (default)"],
            {"retry": {"base_s": 1}},
        ),
        (
            {"headers": {"x-team": "other", "x-b": "1"}},
            ["headers.x-team: … → another value", "headers.x-b: none → …"],
            {"headers": {"X-Team": "other", "x-b": "1"}},
        ),
        ({"headers": {"x-team": None}}, ["headers.x-team: … → none"], {"headers": {}}),
        ({"secrets": ["…", "…"], "order": "strict"}, ["order: relaxed → strict"], {"order": "strict"}),
    ],
)
async def test_named_members_change_and_all_others_stay(
    bench: Patching, change: dict[str, Any], changes: list[str], members: dict[str, Any]
) -> None:
    await bench.store(FULL)
    assert await bench.patched(change, dry_run=True) == changes
    assert await bench.stored() == FULL
    assert await bench.patched(change) == changes
    assert await bench.stored() == {
        name: value for name, value in (FULL | members).items() if value is not None
    }


async def test_a_rate_in_words_is_changed_by_its_members(bench: Patching) -> None:
    await bench.store({"url": URL, "rate": "10/min"})
    assert await bench.patched({"rate": {"burst": 5}}) == ["rate: 10/minute, burst 1 → 10/minute, burst 5"]
    await bench.store({"url": URL, "rate": {"limit": 10}})
    await bench.patched({"rate": "20/min"})
    assert (await bench.stored())["rate"] == "20/min"
    assert (
        (await bench.refused({"rate": "20/fortnight"})).problems[0].startswith("rate: '20/fortnight' is not")
    )
    await bench.store({"url": URL, "rate": "10/min"})
    await bench.patched({"order": "relaxed"})
    assert await bench.stored() == {"url": URL, "rate": "10/min", "order": "relaxed"}


async def test_a_part_of_several_rates_is_not_changed(bench: Patching) -> None:
    several = {"url": URL, "rate": ["10/s", "500/min"]}
    await bench.store(several)
    problem = "rate: several are stored; give all of them again, with what is to change"
    assert (await bench.refused({"rate": {"margin": 0.9}})).problems == (problem,)
    assert await bench.stored() == several
    await bench.patched({"rate": {"limit": 5}})
    assert (await bench.stored())["rate"] == {"limit": 5}


async def test_a_change_without_effect_is_not_stored(bench: Patching) -> None:
    revision = await bench.store(FULL)
    done = await patch_configuration(bench.to, NAME, {"order": "relaxed"})
    assert isinstance(done, PutResult)
    assert (done.revision, done.changes) == (revision, [])
    found = await StoredConfigurations(bench.js, bench.names).get(NAME)
    assert found is not None
    assert found.revision == revision


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rate": {"limit": -1}}, "rate.limit: "),
        ({"colour": "red"}, "colour: unknown member"),
        ({"colour": None}, "colour: unknown member"),
        ({"url": None}, "url: required, but missing"),
        ({"retry": {"cap_s": 0.5}}, "retry.cap_s: must not be below"),
    ],
)
async def test_each_bad_member_is_named_and_nothing_changes(
    bench: Patching, change: dict[str, Any], problem: str
) -> None:
    await bench.store(FULL)
    failure = await bench.refused(change)
    assert failure.kind == "invalid"
    assert failure.problems[0].startswith(problem)
    assert await bench.stored() == FULL


async def test_an_unknown_member_can_be_removed(bench: Patching) -> None:
    await bench.store(FULL | {"colour": "hush"})
    assert (await bench.refused({"order": "strict"})).problems[0].startswith("colour: unknown")
    assert await bench.patched({"colour": None}) == ["colour: … → none"]


async def test_a_receiver_that_does_not_exist_cannot_be_changed(bench: Patching) -> None:
    assert (await bench.refused({"order": "strict"})).kind == "not_found"


async def test_a_change_by_another_user_is_not_overwritten(
    bench: Patching, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = await bench.store(FULL)
    theirs = FULL | {"paused": True}
    await bench.store(theirs)
    failure = await bench.refused({"order": "strict"}, revision=revision)
    assert failure.kind == "conflict"
    assert f"not {revision}" in failure.text
    with bench.overtaken(monkeypatch, theirs):
        assert (await bench.refused({"order": "strict"})).kind == "conflict"
        late = await rotate_secret(bench.to, NAME, 60)
    assert isinstance(late, NotDone)
    assert late.kind == "conflict"
    assert await bench.stored() == theirs


async def test_a_put_may_name_what_it_was_made_from(bench: Patching) -> None:
    first = NewConfiguration(members={"url": URL}, revision=0)
    assert isinstance(await put_configuration(bench.to, NAME, first), PutResult)
    again = await put_configuration(bench.to, NAME, first)
    assert isinstance(again, NotDone)
    assert again.kind == "conflict"


# ---- secrets


async def test_a_rotated_secret_keeps_the_algorithm_and_has_its_public_key_in_the_result(
    bench: Patching,
) -> None:
    await bench.store({"url": URL, "secrets": [A]})
    first = await rotate_secret(bench.to, NAME, 3600, kind="ed25519")
    assert isinstance(first, RotatedSecret)
    assert first.secret.startswith("whsk_")
    second = await bench.rotated(3600)
    assert second.secret.startswith("whsk_")
    keys = [public_key(second.secret), public_key(first.secret)]
    assert second.public_keys == keys
    shown = await get_configuration(bench.to, NAME)
    assert isinstance(shown, ShownConfiguration)
    assert shown.members["secrets"] == keys[:1]
    assert [each["secret"] for each in shown.members["old_secrets"]] == [keys[1], HIDDEN]


async def test_a_rotated_secret_ends_by_itself(bench: Patching) -> None:
    await bench.store(FULL)
    before = time.time()
    done = await bench.rotated(3600)
    assert done.until is not None
    assert done.secrets == 3
    end = datetime.fromisoformat(done.until).timestamp()
    assert int(before) + 3600 <= end <= time.time() + 3600
    assert await bench.stored() == FULL | {
        "secrets": [done.secret],
        "old_secrets": [{"secret": B, "until": done.until}, {"secret": A, "until": done.until}],
    }


async def test_a_second_rotation_leaves_the_first_its_end(bench: Patching) -> None:
    olds = [{"secret": A, "until": "2099-01-01T00:00:00Z"}]
    await bench.store({"url": URL, "secrets": [B], "old_secrets": olds})
    done = await bench.rotated(60)
    assert done.until == "2099-01-01T00:00:00Z"
    newer, older = (await bench.stored())["old_secrets"]
    assert newer["secret"] == B
    assert newer["until"] < older["until"] == "2099-01-01T00:00:00Z"


async def test_without_an_overlap_the_new_one_signs_alone(bench: Patching) -> None:
    await bench.store(FULL | {"old_secrets": [{"secret": C, "until": "2099-01-01T00:00:00Z"}]})
    done = await bench.rotated(0)
    assert (done.until, done.secrets) == (None, 1)
    assert await bench.stored() == FULL | {"secrets": [done.secret]}


async def test_an_unsigned_receiver_is_signed_from_now_on(bench: Patching) -> None:
    await bench.store({"url": URL})
    done = await bench.rotated(3600)
    assert (done.until, await bench.stored()) == (None, {"url": URL, "secrets": [done.secret]})


async def test_there_are_never_more_secrets_than_may_sign(bench: Patching) -> None:
    await bench.store({"url": URL, "secrets": [A] * 8})
    failure = await rotate_secret(bench.to, NAME, 3600)
    assert isinstance(failure, NotDone)
    assert failure.problems == ("old_secrets: 9 together with secrets, at most 8; leave out the oldest",)


@pytest.mark.parametrize("overlap_s", [-1, OVERLAP_MAX_S + 1])
async def test_an_overlap_has_its_bounds(bench: Patching, overlap_s: float) -> None:
    failure = await rotate_secret(bench.to, NAME, overlap_s)
    assert isinstance(failure, NotDone)
    assert failure.text == "overlap: must be from 0s to 90d"


async def test_old_secrets_stay_until_they_end_and_are_hidden(bench: Patching) -> None:
    olds = [{"secret": A, "until": "2099-01-01T00:00:00Z"}]
    await bench.store({"url": URL, "secrets": [B], "old_secrets": olds})
    shown = await get_configuration(bench.to, NAME)
    assert isinstance(shown, ShownConfiguration)
    assert shown.members["old_secrets"] == [{"secret": "…", "until": "2099-01-01T00:00:00Z"}]
    for members in (shown.members, {"url": URL}):
        done = await put_configuration(bench.to, NAME, NewConfiguration(members=members))
        assert isinstance(done, PutResult)
        assert (done.changes, done.secrets) == ([], 2)
    lost = await put_configuration(
        bench.to, NAME, NewConfiguration(members=shown.members | {"old_secrets": []})
    )
    assert isinstance(lost, NotDone)
    assert "old_secrets: 1 until 2099-01-01T00:00:00Z → none" in lost.text
    dropped = await put_configuration(bench.to, NAME, NewConfiguration(members=None, drop_old_secrets=True))
    assert isinstance(dropped, PutResult)
    assert await bench.stored() == {"url": URL, "secrets": [B]}


async def test_an_old_secret_that_is_over_goes_with_the_next_change(bench: Patching) -> None:
    await bench.store(
        {"url": URL, "secrets": [B], "old_secrets": [{"secret": A, "until": "2026-01-01T00:00:00Z"}]}
    )
    assert await bench.patched({"order": "relaxed"}) == ["order: strict (default) → relaxed"]
    assert await bench.stored() == {"url": URL, "secrets": [B], "order": "relaxed"}
