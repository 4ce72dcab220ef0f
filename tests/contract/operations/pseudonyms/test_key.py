"""The key of pseudonyms is made when it is needed, and stays until a user replaces it on purpose."""

from typing import Any

import msgspec
import pytest

from actors.configuration.transform import pseudonym_key
from angarium.operations.configurations.get import ShownConfiguration, get_configuration
from angarium.operations.configurations.patch import patch_configuration
from angarium.operations.configurations.proposal import PutResult
from angarium.operations.configurations.put import NewConfiguration, put_configuration
from angarium.operations.configurations.rotate import RotatedSecret, rotate_secret
from angarium.operations.declarations.apply import AppliedDocument, apply
from angarium.operations.failures import NotDone
from streams.nats.jetstream import JetStream
from tests.contract.support.configurations import NAME, URL, Configurations
from tests.support.installation import install

TRANSFORM = {"pseudonymize": ["/user/id"]}
PSEUDONYMOUS = {"url": URL, "transform": TRANSFORM}
KEY = "psk_" + "b2xk" * 8


class Keys(Configurations):
    """One receiver, and the key that is stored for it."""

    async def put(self, members: dict[str, Any], **said: Any) -> PutResult:
        done = await put_configuration(self.to, NAME, NewConfiguration(members=members, **said))
        assert isinstance(done, PutResult), done
        return done

    async def key(self) -> str:
        """The stored key, which can be used."""
        key = (await self.stored())["pseudonym_key"]
        assert isinstance(pseudonym_key(key), bytes)
        return str(key)


@pytest.fixture
async def bench(js: JetStream, prefix: str) -> Keys:
    return Keys(js, await install(js, prefix), prefix)


async def test_a_key_is_made_when_pseudonyms_are_first_wanted(bench: Keys) -> None:
    await bench.put({"url": URL, "transform": {"drop": ["/a"]}})
    assert "pseudonym_key" not in await bench.stored()
    await bench.put(PSEUDONYMOUS, replace=True)
    first = await bench.key()
    await bench.put({"url": URL}, replace=True)
    assert await bench.key() == first


async def test_a_patch_makes_a_key_too(bench: Keys) -> None:
    await bench.put({"url": URL})
    done = await patch_configuration(bench.to, NAME, {"transform": TRANSFORM})
    assert isinstance(done, PutResult), done
    assert await bench.key()


async def test_every_change_of_the_rest_leaves_the_key_alone(bench: Keys) -> None:
    await bench.put(PSEUDONYMOUS)
    first = await bench.key()
    await bench.put(PSEUDONYMOUS | {"order": "relaxed"})
    assert isinstance(await patch_configuration(bench.to, NAME, {"transform": None}), PutResult)
    assert isinstance(await rotate_secret(bench.to, NAME, 0.0), RotatedSecret)
    assert isinstance(await apply(bench.to, {NAME: PSEUDONYMOUS}), AppliedDocument)
    assert await bench.key() == first


async def test_the_key_is_never_shown_and_its_mask_stands_for_it(bench: Keys) -> None:
    await bench.put(PSEUDONYMOUS)
    first = await bench.key()
    shown = await get_configuration(bench.to, NAME)
    assert isinstance(shown, ShownConfiguration)
    assert shown.members["pseudonym_key"] == "…"
    assert shown.members["transform"] == TRANSFORM
    await bench.put(shown.members)
    assert await bench.key() == first


async def test_a_mask_without_a_stored_key_is_refused(bench: Keys) -> None:
    refused = await put_configuration(
        bench.to, NAME, NewConfiguration(members=PSEUDONYMOUS | {"pseudonym_key": "…"})
    )
    assert isinstance(refused, NotDone)
    assert refused.text.startswith("pseudonym_key: ")


@pytest.mark.parametrize("key", [None, KEY])
async def test_another_key_takes_consent_and_no_change_says_it(bench: Keys, key: str | None) -> None:
    await bench.put(PSEUDONYMOUS)
    first = await bench.key()
    changed = PSEUDONYMOUS | {"pseudonym_key": key}
    refused = await put_configuration(bench.to, NAME, NewConfiguration(members=changed))
    assert isinstance(refused, NotDone)
    assert "pseudonym_key: … → another value" in refused.text
    assert await bench.key() == first
    done = await bench.put(changed, replace=True)
    assert await bench.key() != first
    assert first not in msgspec.json.encode(done).decode()
