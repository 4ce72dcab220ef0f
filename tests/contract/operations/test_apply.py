"""Applying a document of receivers: all checked first, idempotent, and no other change overwritten."""

from typing import Any

import msgspec
import pytest

from actors.errors import InvalidPolicy
from angarium.operations.declarations.apply import AppliedDocument, ReceiverChange, apply
from angarium.operations.declarations.declared import RECEIVERS_MAX, read_declared
from angarium.operations.declarations.export import ExportedReceivers, export
from angarium.operations.failures import NotDone
from streams.buckets.stored_configurations import StoredConfigurations
from streams.nats.jetstream import JetStream
from tests.contract.support.configurations import URL, Configurations
from tests.support.installation import install

A, B = (f"whsec_{letter * 32}" for letter in "AB")


class Applying(Configurations):
    """`apply` and `export`, as the commands call them."""

    async def all(self, tenant: str = "*") -> dict[str, Any]:
        found = await StoredConfigurations(self.js, self.names).all(tenant)
        return {name: msgspec.json.decode(each.raw) for name, each in found.items()}

    async def revisions(self) -> dict[str, int]:
        found = await StoredConfigurations(self.js, self.names).all()
        return {name: each.revision for name, each in found.items()}

    async def applied(self, declared: dict[str, Any], **said: Any) -> AppliedDocument:
        done = await apply(self.to, declared, **said)
        assert isinstance(done, AppliedDocument), done
        return done

    async def exported(self) -> dict[str, Any]:
        done = await export(self.to)
        assert isinstance(done, ExportedReceivers)
        assert done.unreadable == []
        return done.receivers


@pytest.fixture
async def bench(js: JetStream, prefix: str) -> Applying:
    return Applying(js, await install(js, prefix), prefix)


def actions(plan: list[ReceiverChange]) -> list[str]:
    return [f"{each.action} {each.receiver}" for each in plan]


async def test_the_plan_comes_first_and_a_second_time_nothing_is_left_to_do(bench: Applying) -> None:
    await bench.store({"url": URL, "secrets": [A], "order": "relaxed", "rate": "10/s"}, "acme.old")
    await bench.store({"url": URL, "secrets": [B], "rate": {"limit": 5}}, "acme.same")
    declared = {
        "acme.old": {"url": URL, "rate": "5/s"},
        "acme.new": {"url": URL},
        "acme.same": {"url": URL, "rate": "5/second"},
    }
    before = await bench.all()
    wish = ["create acme.new", "change acme.old", "keep acme.same"]
    plans: list[list[ReceiverChange]] = []

    def look(plan: list[ReceiverChange]) -> bool:
        plans.append(plan)
        return False

    looked = await bench.applied(declared, agreed=look)
    assert [actions(looked.plan), *map(actions, plans)] == [wish, wish]
    assert (looked.agreed, looked.stored) == (False, [])
    assert await bench.all() == before

    done = await bench.applied(declared)
    assert [list(map(str, each.changes)) for each in done.plan][1] == [
        "order: relaxed → strict (default)", "rate: 10/second → 5/second",
    ]  # fmt: skip
    (new, old) = done.stored
    assert (new.secret is None, old.secret) == (False, None)
    assert await bench.all() == before | {
        "acme.new": {"url": URL, "secrets": [new.secret]},
        "acme.old": {"url": URL, "rate": "5/s", "secrets": [A]},
    }
    revisions = await bench.revisions()
    again = await bench.applied(declared)
    assert [each.action for each in again.plan] == ["keep"] * 3
    assert await bench.revisions() == revisions


async def test_an_export_changes_nothing_when_applied_and_shows_no_secret(bench: Applying) -> None:
    olds = [{"secret": B, "until": "2099-01-01T00:00:00Z"}]
    full = {"url": URL, "secrets": [A], "old_secrets": olds, "headers": {"X-Team": "hush"}, "paused": True}
    await bench.store(full, "acme.full")
    await bench.store({"url": URL}, "other.plain")
    exported = await bench.exported()
    assert not any(each in str(exported) for each in ("hush", A, B))
    done = await bench.applied(exported)
    assert [each.action for each in done.plan] == ["keep", "keep"]
    for toml in (False, True):
        text = msgspec.json.encode({"receivers": exported})
        if toml:
            text = b'[receivers."other.plain"]\nurl = "https://example.com/hook"\n'
        assert (await bench.applied(read_declared(text, toml=toml))).stored == []


async def test_a_pause_that_an_operator_put_in_force_stays(bench: Applying) -> None:
    await bench.store({"url": URL, "secrets": [], "paused": True}, "acme.a")
    done = await bench.applied({"acme.a": {"url": URL}})
    assert actions(done.plan) == ["keep acme.a"]
    await bench.applied({"acme.a": {"url": URL, "paused": False}})
    assert (await bench.all())["acme.a"]["paused"] is False


async def test_prune_removes_what_is_not_declared_of_the_tenants_in_the_document(bench: Applying) -> None:
    for name in ("acme.a", "acme.b", "other.c"):
        await bench.store({"url": URL, "secrets": []}, name)
    done = await bench.applied({"acme.a": {"url": URL}}, prune=True)
    assert actions(done.plan) == ["keep acme.a", "remove acme.b"]
    assert done.removed == ["acme.b"]
    assert list(await bench.all()) == ["acme.a", "other.c"]
    assert (await bench.applied({}, prune=True)).plan == []
    assert (await bench.applied({}, prune=True, tenant="other")).removed == ["other.c"]
    stranger = await apply(bench.to, {"other.x": {"url": URL}}, tenant="acme")
    assert isinstance(stranger, NotDone)
    assert stranger.problems == ("/receivers/other.x: is not of the tenant acme",)


async def test_a_single_bad_receiver_is_named_and_nothing_is_applied(bench: Applying) -> None:
    await bench.store({"url": URL}, "acme.a")
    before = await bench.all()
    failure = await apply(bench.to, {
        "acme.a": {"url": URL, "order": "relaxed"},
        "acme.b": {"url": URL, "rate": {"limit": -1}, "headers": {"host": "x"}, "colour": 1},
        "acme.c": {"url": URL, "secrets": ["…"]},
        "acme.d": {"url": URL, "events": ["order.>", "order..x"]},
    })  # fmt: skip
    assert isinstance(failure, NotDone)
    assert failure.kind == "invalid"
    assert [each.partition(": ")[0] for each in failure.problems] == [
        "/receivers/acme.b/colour",
        "/receivers/acme.b/rate/limit",
        "/receivers/acme.b/headers/host",
        "/receivers/acme.c/secrets",
        "/receivers/acme.d/events/1",
    ]
    assert await bench.all() == before


async def test_a_receiver_that_another_user_changes_meanwhile_is_left_alone_and_reported(
    bench: Applying,
) -> None:
    for name in ("acme.a", "acme.b", "acme.c", "acme.gone"):
        await bench.store({"url": URL, "secrets": []}, name)
    theirs = {"url": "https://example.com/theirs", "secrets": []}
    declared = {name: {"url": URL, "order": "relaxed"} for name in ("acme.a", "acme.b", "acme.c")}
    plan = await bench.applied(declared, prune=True, agreed=lambda _: False)
    assert len(plan.plan) == 4
    all_of = StoredConfigurations.all

    async def all_and_be_overtaken(self: StoredConfigurations, tenant: str = "*") -> Any:
        found = await all_of(self, tenant)
        await bench.store(theirs, "acme.b")
        await bench.store(theirs, "acme.gone")
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StoredConfigurations, "all", all_and_be_overtaken)
        done = await bench.applied(declared, prune=True)
    assert sorted(done.failed) == ["acme.b", "acme.gone"]
    assert all("changed at the same moment" in each for each in done.failed.values())
    assert [each.receiver for each in done.stored] == ["acme.a", "acme.c"]
    assert (await bench.all())["acme.b"] == theirs
    assert (await bench.all())["acme.gone"] == theirs


@pytest.mark.parametrize(
    ("text", "toml", "problem"),
    [
        (b"[", False, "not valid JSON"),
        (b"=", True, "not valid TOML"),
        (b"[]", False, "/receivers: missing; write {"),
        (b"x = 1", True, '/receivers: missing; write [receivers."acme.billing"]'),
        (b'{"receivers": {"acme": {}}}', False, "/receivers/acme: "),
        (b'{"receivers": {"acme.a": 1}}', False, "/receivers/acme.a: must be an object"),
        (b'{"receivers": {}, "a/b": 1}', False, "/a~1b: unknown member"),
        (b"\xff", True, "not valid TOML"),
    ],
)
def test_a_document_that_declares_no_receivers_is_refused(text: bytes, toml: bool, problem: str) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        read_declared(text, toml=toml)
    assert refused.value.problems[0].startswith(problem)


def test_a_document_has_its_bounds() -> None:
    many: dict[str, Any] = {f"acme.r{number}": {} for number in range(RECEIVERS_MAX + 1)}
    with pytest.raises(InvalidPolicy) as refused:
        read_declared(msgspec.json.encode({"receivers": many}), toml=False)
    assert refused.value.problems == ["/receivers: 10001 of them, at most 10000; split it by tenant"]
