"""Operations on sealed configurations, and the rotation of the key that seals them."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from angarium.access import open_jetstream
from angarium.operations.configurations.get import ShownConfiguration, get_configuration
from angarium.operations.configurations.patch import patch_configuration
from angarium.operations.configurations.proposal import PutResult
from angarium.operations.configurations.put import NewConfiguration, put_configuration
from angarium.operations.configurations.rotate import RotatedSecret, rotate_secret
from angarium.operations.declarations.apply import AppliedDocument, apply
from angarium.operations.declarations.export import ExportedReceivers, export
from angarium.operations.failures import NotDone
from angarium.operations.installation.doctor import all_checks
from angarium.operations.installation.doctor.findings import Finding, ok, warning
from angarium.operations.installation.doctor.stored_secrets import check_secrets
from angarium.operations.installation.key import KeyRotation, KeyUse, key_use, rotate_key
from angarium.settings import Settings
from streams.buckets.sealing_marker import is_sealing, mark_sealing
from streams.buckets.stored_configurations import KeysUsed, StoredConfigurations
from streams.nats.jetstream import JetStream
from streams.sealing.keys import NO_KEYS, Keys
from tests.contract.support.configurations import NAME, TOO_LARGE_SEALED, URL, Configurations
from tests.support.installation import SHARDS, install

OLD, NEW = Keys({"old": b"o" * 32}), Keys({"new": b"n" * 32, "old": b"o" * 32})
A, B = (f"whsec_{letter * 32}" for letter in "AB")
ED25519 = "whsk_" + "A" * 43 + "="
FULL: dict[str, Any] = {"url": URL, "secrets": [A], "headers": {"X-Team": "hush-header"}}


class Sealing(Configurations):
    """One installation, for a process with these keys or those."""

    def use(self, keys: Keys) -> None:
        self.to = replace(self.to, keys=lambda: keys)

    async def put(self, members: dict[str, Any] | None, name: str = NAME, **said: Any) -> PutResult:
        done = await put_configuration(self.to, name, NewConfiguration(members=members, **said))
        assert isinstance(done, PutResult), done
        return done

    async def shown(self, name: str = NAME) -> ShownConfiguration:
        found = await get_configuration(self.to, name)
        assert isinstance(found, ShownConfiguration)
        return found

    async def opened(self, name: str = NAME) -> Any:
        """The members, with the secrets that the present keys open."""
        found = await self.to.configurations.get(name)
        assert found is not None
        return msgspec.json.decode(found.raw)

    async def rotated(self) -> KeyRotation:
        done = await rotate_key(self.to, lambda done, total: None)
        assert isinstance(done, KeyRotation), done
        return done

    async def used(self) -> KeyUse:
        found = await key_use(self.to)
        assert isinstance(found, KeyUse)
        return found

    async def findings(self) -> list[tuple[str, str]]:
        return [(each.level, each.sentence) for each in await check_secrets(self.to)]


@pytest.fixture
async def bench(js: JetStream, prefix: str) -> Sealing:
    return Sealing(js, await install(js, prefix), prefix)


async def test_a_shown_configuration_can_be_put_again_with_and_without_the_key(bench: Sealing) -> None:
    bench.use(NEW)
    await bench.put(FULL | {"secrets": [ED25519]})
    stored = await bench.stored()
    assert stored["secrets"][0].startswith("sealed:new:")
    shown = await bench.shown()
    assert shown.members["secrets"][0].startswith("whpk_")
    assert (shown.problems, shown.members["headers"]) == ([], {"X-Team": "…"})
    assert (await bench.put(shown.members)).changes == []
    assert await bench.stored() == stored

    bench.use(NO_KEYS)
    shown = await bench.shown()
    assert (shown.problems, shown.members["secrets"]) == ([], ["…"])
    done = await bench.put(shown.members | {"timeout_s": 5})
    assert [str(each) for each in done.changes] == ["timeout_s: 15 (default) → 5"]
    assert await bench.stored() == stored | {"timeout_s": 5}


async def test_secrets_are_added_and_rotated_under_the_present_key(bench: Sealing) -> None:
    bench.use(OLD)
    await bench.put(FULL)
    bench.use(NEW)
    done = await bench.put(None, add_secret=B)
    assert [str(each) for each in done.changes] == ["secrets: 1 → 2 (1 new)"]
    assert (await bench.opened())["secrets"] == [B, A]
    assert (await bench.used()).receivers == {"new": 1}
    rotated = await rotate_secret(bench.to, NAME, 3600.0)
    assert isinstance(rotated, RotatedSecret)
    members = await bench.opened()
    assert members["secrets"] == [rotated.secret]
    assert [each["secret"] for each in members["old_secrets"]] == [B, A]
    assert not [each for each in (A, B, rotated.secret, "hush") if each in str(await bench.stored())]
    patched = await patch_configuration(bench.to, NAME, {"headers": {"x-new": "other-hush"}})
    assert isinstance(patched, PutResult)
    assert [str(each) for each in patched.changes] == ["headers.x-new: none → …"]
    assert "hush" not in str(await bench.stored())


async def test_a_document_is_applied_twice_without_a_change(bench: Sealing) -> None:
    bench.use(NEW)
    done = await apply(bench.to, {NAME: FULL})
    assert isinstance(done, AppliedDocument)
    for keys in (NEW, NO_KEYS):
        bench.use(keys)
        exported = await export(bench.to)
        assert isinstance(exported, ExportedReceivers)
        again = await apply(bench.to, exported.receivers)
        assert isinstance(again, AppliedDocument)
        assert [each.action for each in again.plan] == ["keep"]


async def test_a_process_without_the_key_is_told_what_it_needs(bench: Sealing) -> None:
    await mark_sealing(bench.js, bench.names, "new")
    failure = await put_configuration(bench.to, NAME, NewConfiguration(members={"url": URL}))
    assert isinstance(failure, NotDone)
    assert failure.kind == "invalid"
    assert "give it the key file (ANGARIUM_KEY_FILE)" in failure.sentence
    assert await bench.stored() is None


async def test_a_rotation_seals_what_is_left_and_a_second_one_finds_nothing(bench: Sealing) -> None:
    bench.use(OLD)
    await bench.put(FULL, "acme.old")
    await bench.store(FULL, "acme.clear")
    await bench.store({"url": URL}, "acme.unsigned")
    bench.use(NEW)
    await bench.put(FULL, "acme.new")
    seen: list[tuple[int, int]] = []
    done = await rotate_key(bench.to, lambda done, total: seen.append((done, total)))
    assert done == KeyRotation(key="new", sealed=2, already=1, left={})
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert await bench.rotated() == KeyRotation(key="new", sealed=0, already=3, left={})
    assert await bench.used() == KeyUse(
        present="new", receivers={"new": 3}, unencrypted=[], unopened={}, required=True
    )
    for name in ("acme.old", "acme.clear", "acme.new"):
        assert await bench.opened(name) == FULL


async def test_an_unencrypted_value_that_looks_sealed_is_sealed(bench: Sealing) -> None:
    """The header begins with the id of the present key, and what follows could be a nonce and a tag."""
    await bench.put({"url": URL, "headers": {"x-token": "api:" + "QUJD" * 12}})
    bench.use(Keys({"api": b"n" * 32}))
    assert (await bench.rotated()).sealed == 1
    assert (await bench.rotated()).already == 1
    assert not (await bench.used()).unencrypted


async def test_two_rotations_at_once_do_no_harm(bench: Sealing) -> None:
    names = [f"acme.r{number}" for number in range(40)]
    for name in names:
        await bench.store(FULL, name)
    bench.use(NEW)
    done = await asyncio.gather(bench.rotated(), bench.rotated())
    assert sum(each.sealed for each in done) == len(names)
    assert all((each.sealed + each.already, each.left) == (len(names), {}) for each in done)
    assert (await bench.used()).receivers == {"new": len(names)}


async def test_a_rotation_names_what_it_leaves(bench: Sealing) -> None:
    bench.use(Keys({"lost": b"l" * 32}))
    await bench.put(FULL, "acme.lost")
    bench.use(NEW)
    await bench.store({"url": "ftp://x", "secrets": [A]}, "acme.invalid")
    await bench.store(TOO_LARGE_SEALED, "acme.large")
    await bench.store(FULL, "acme.well")
    done = await bench.rotated()
    assert (done.sealed, list(done.left)) == (1, ["acme.invalid", "acme.large", "acme.lost"])
    assert "is sealed by the key lost" in done.left["acme.lost"][0]
    assert list((await bench.used()).unopened) == ["acme.lost"]
    assert (await bench.shown("acme.lost")).problems == [*done.left["acme.lost"]]


async def test_a_rotation_needs_a_key(bench: Sealing) -> None:
    await bench.store(FULL)
    failure = await rotate_key(bench.to, lambda done, total: None)
    assert isinstance(failure, NotDone)
    assert failure.sentence == "there is no key to seal with: give a key file (ANGARIUM_KEY_FILE)"
    assert not await is_sealing(bench.js, bench.names)


async def test_the_doctor_reads_the_configurations_once(
    bench: Sealing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large installation has as many megabytes of them as receivers in thousands."""
    reads, read = list[str](), StoredConfigurations.key_uses

    async def counted(configurations: StoredConfigurations) -> dict[str, KeysUsed]:
        reads.append("all")
        return await read(configurations)

    monkeypatch.setattr(StoredConfigurations, "key_uses", counted)
    bench.use(OLD)
    await bench.store(FULL, "acme.sealed")
    await bench.rotated()
    bench.use(NO_KEYS)
    (finding,) = await check_secrets(bench.to, ["acme.sealed"])
    assert (finding.level, reads) == ("warning", ["all"])


async def test_doctor_names_unencrypted_secrets_and_unopened_ones(bench: Sealing) -> None:
    assert await bench.findings() == []
    await bench.store(FULL, "acme.clear")
    clear = "NATS has unencrypted secrets of 1 receiver"
    assert await bench.findings() == [
        ("ok", f"{clear}; a key file seals them (docs/operating.md, Secrets at rest)")
    ]
    bench.use(OLD)
    assert await bench.findings() == [("warning", f"{clear}: seal them (angarium key rotate)")]
    await bench.rotated()
    assert await bench.findings() == [("ok", "secrets are sealed with old (1)")]
    bench.use(NEW)
    older = "secrets are sealed with old (1); 1 of them not with the first key"
    assert await bench.findings() == [
        ("warning", f"{older}: seal them with new, before an older key leaves the file (angarium key rotate)")
    ]
    bench.use(NO_KEYS)
    assert await bench.findings() == [
        ("ok", "secrets are sealed with old (1); only with the key file doctor checks whether they open")
    ]
    for misconfigured in (["acme.clear", "acme.none"], ["acme.none"]):
        (finding,) = await check_secrets(bench.to, misconfigured)
        assert (finding.level == "warning") == ("acme.clear" in misconfigured)
    (finding,) = await check_secrets(bench.to, ["acme.clear"])
    assert finding.sentence == (
        "secrets are sealed with old (1); no node sends to acme.clear, perhaps because a key is missing: "
        "find the reason in its state (angarium inspect acme.clear)"
    )
    bench.use(Keys({"old": b"x" * 32}))
    (_, (level, sentence)) = await bench.findings()
    assert level == "problem"
    assert sentence.startswith(
        "the secrets of acme.clear cannot be opened: secrets[0]: was changed, or sealed for another receiver"
    )


async def test_the_doctor_doubts_secrets_of_receivers_that_are_misconfigured(
    nats_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor` has no key itself, so it cannot tell whether a node has the right one."""
    unusable = [
        replace(warning("receivers", "unusable"), receiver=NAME, condition="misconfigured"),
        ok("clock", "exact"),
    ]

    async def found(*_: object) -> list[Finding]:
        return unusable

    monkeypatch.setattr(all_checks, "check_running", found)
    settings = Settings(nats=(nats_url,), prefix=prefix, shards=SHARDS)
    async with open_jetstream(settings) as js:
        bench = Sealing(js, await install(js, prefix), prefix)
        bench.use(OLD)
        await bench.put(FULL)
    for level in ("warning", "ok"):
        *_, last = await all_checks.check_everything(settings)
        assert (last.subject, last.level) == ("secrets", level)
        unusable = unusable[1:]
