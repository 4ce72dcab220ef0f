"""Configurations with sealed secrets in their bucket: seen above it only if a key is missing."""

from typing import Any

import msgspec
import pytest

from actors.configuration.policy import Policy
from actors.errors import InvalidPolicy
from actors.ports import Absent, Invalid
from streams.buckets.change_trail import recorded, recorded_before
from streams.buckets.known_configurations import KnownConfigurations
from streams.buckets.sealing_marker import is_sealing, mark_sealing
from streams.buckets.stored_configurations import StoredConfigurations, Unopened
from streams.installation.topology import Names
from streams.nats.answers import Refused, StoredMessage
from streams.nats.jetstream import JetStream
from streams.sealing.documents import keys_used
from streams.sealing.keys import NO_KEYS, Keys
from tests.contract.buckets.configurations import RECEIVER, URL, put, raw, stored
from tests.contract.support.configurations import TOO_LARGE_SEALED
from tests.contract.support.faults import FaultyJetStream
from tests.support.waiting import until

OLD, NEW = Keys({"old": b"o" * 32}), Keys({"new": b"n" * 32, "old": b"o" * 32})
A, B = (f"whsec_{letter * 32}" for letter in "AB")
MEMBERS: dict[str, Any] = {"url": URL, "secrets": [A], "headers": {"authorization": "Bearer hush"}}
FULL = msgspec.json.encode(MEMBERS)
OTHER = "acme.other"


class KeyRing:
    """The keys of a process, which the test replaces."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys

    def __call__(self) -> Keys:
        return self.keys


def with_keys(js: JetStream, names: Names, keys: Keys) -> StoredConfigurations:
    return StoredConfigurations(js, names, by="test", keys=KeyRing(keys))


async def kept(js: JetStream, names: Names, receiver: str = RECEIVER) -> StoredMessage:
    """The only value that the bucket has of the receiver."""
    (message,) = (await js.read(names.receivers, names.receiver(receiver), 1)).messages
    return message


async def keys_of(js: JetStream, names: Names, receiver: str = RECEIVER) -> dict[str, int]:
    return keys_used(msgspec.json.decode((await kept(js, names, receiver)).data))


async def test_secrets_are_sealed_in_the_bucket_and_opened_by_who_has_the_key(
    js: JetStream, names: Names
) -> None:
    configurations = with_keys(js, names, NEW)
    stored(await configurations.put(RECEIVER, FULL))
    message = await kept(js, names)
    assert not [each for each in (A, "hush") if each in f"{message.data!r} {message.headers}"]
    for found in (
        await configurations.get(RECEIVER),
        (await configurations.all())[RECEIVER],
        (await configurations.get_many([RECEIVER]))[RECEIVER],
    ):
        assert found is not None
        assert (msgspec.json.decode(found.raw), found.unopened) == (MEMBERS, ())
    policy = await KnownConfigurations(js, names, keys=KeyRing(NEW)).confirm(RECEIVER)
    assert isinstance(policy, Policy)
    assert (policy.secrets, policy.headers) == ((A,), MEMBERS["headers"])


async def test_a_process_without_a_key_keeps_what_is_stored(js: JetStream, names: Names) -> None:
    stored(await with_keys(js, names, NEW).put(RECEIVER, FULL))
    before, keyless = await kept(js, names), with_keys(js, names, NO_KEYS)
    found = await keyless.get(RECEIVER)
    assert found is not None
    members = msgspec.json.decode(found.raw) | {"timeout_s": 5}
    stored(await keyless.put(RECEIVER, msgspec.json.encode(members), found.revision))
    assert msgspec.json.decode((await kept(js, names)).data) == msgspec.json.decode(before.data) | {
        "timeout_s": 5
    }
    assert await keyless.set_paused(RECEIVER, True) is None
    found = await with_keys(js, names, NEW).get(RECEIVER)
    assert found is not None
    assert msgspec.json.decode(found.raw) == MEMBERS | {"timeout_s": 5, "paused": True}


async def test_new_unencrypted_secrets_are_refused_once_the_installation_seals(
    js: JetStream, names: Names
) -> None:
    keyless = with_keys(js, names, NO_KEYS)
    stored(await keyless.put(OTHER, FULL))
    await mark_sealing(js, names, "new")
    await mark_sealing(js, names, "other")
    assert await is_sealing(js, names)
    with pytest.raises(InvalidPolicy, match=r"secrets\[0\]: this installation seals.*ANGARIUM_KEY_FILE"):
        await keyless.put(RECEIVER, FULL)
    with pytest.raises(InvalidPolicy, match=r"secrets\[1\]: this installation seals"):
        await keyless.put(OTHER, msgspec.json.encode(MEMBERS | {"secrets": [A, B]}))
    stored(await keyless.put(RECEIVER, raw()))
    # What is stored unencrypted stays, until a rotation seals it.
    stored(await keyless.put(OTHER, msgspec.json.encode(MEMBERS | {"timeout_s": 5})))
    assert await keyless.set_paused(OTHER, True) is None


async def test_a_value_of_another_receiver_or_member_is_refused(js: JetStream, names: Names) -> None:
    configurations = with_keys(js, names, NEW)
    stored(await configurations.put(RECEIVER, FULL))
    sealed = msgspec.json.decode((await kept(js, names)).data)
    for members in (sealed, sealed | {"headers": {"x-other": sealed["headers"]["authorization"]}}):
        for anyone in (configurations, with_keys(js, names, NO_KEYS)):
            with pytest.raises(InvalidPolicy, match="sealed"):
                await anyone.put(OTHER, msgspec.json.encode(members))
    assert await configurations.keys() == [RECEIVER]


async def test_sealing_again_changes_nothing_that_is_seen(js: JetStream, names: Names) -> None:
    ring, seen = KeyRing(OLD), list[str]()
    stored(await with_keys(js, names, OLD).put(RECEIVER, FULL))
    known = KnownConfigurations(js, names, keys=ring)
    await known.start()
    known.on_change(seen.append)
    before, trail = known.policy(RECEIVER), recorded(await kept(js, names)).document
    ring.keys = NEW
    configurations = with_keys(js, names, NEW)
    assert await configurations.seal_again(RECEIVER) == "sealed"
    assert await keys_of(js, names) == {"new": 2}
    message = await kept(js, names)
    await until(lambda: known.applied >= message.position)
    assert known.policy(RECEIVER) is before is not None
    assert seen == []
    await known.stop()

    assert [each.document for each in (*recorded_before(message), recorded(message))] == [trail, trail]
    assert await configurations.seal_again(RECEIVER) == "sealed already"
    assert (await kept(js, names)).position == message.position
    stored(await configurations.put(RECEIVER, msgspec.json.encode(MEMBERS | {"secrets": [B]})))
    changed = recorded(await kept(js, names)).document
    assert changed is not None
    assert trail is not None
    assert [name for name in changed if changed[name] != trail[name]] == ["secrets"]


async def test_clear_values_are_sealed_and_gone(js: JetStream, names: Names) -> None:
    for members in (MEMBERS | {"timeout_s": 5}, MEMBERS):
        await put(js, names, msgspec.json.encode(members))
    shown = recorded((await js.read(names.receivers, names.receiver(RECEIVER), 1)).messages[-1]).document
    assert await with_keys(js, names, NEW).seal_again(RECEIVER) == "sealed"
    message = await kept(js, names)
    assert A not in f"{message.data!r} {message.headers}"
    assert recorded(message).document == shown


@pytest.mark.parametrize("value", [b"{", raw(), raw(secrets=[], headers={})])
async def test_there_may_be_nothing_to_seal(js: JetStream, names: Names, value: bytes) -> None:
    configurations = with_keys(js, names, NEW)
    assert await configurations.seal_again(RECEIVER) == "nothing to seal"
    revision = await put(js, names, value)
    assert await configurations.seal_again(RECEIVER) == "nothing to seal"
    assert (await kept(js, names)).position == revision


async def test_an_invalid_configuration_is_left_since_the_last_valid_one_is_in_force(
    js: JetStream, names: Names
) -> None:
    await put(js, names, FULL)
    await put(js, names, raw(secrets=[A], timeout_s=-1))
    found = await with_keys(js, names, NEW).seal_again(RECEIVER)
    assert isinstance(found, Invalid)
    assert "timeout_s" in found.problems[0]
    assert isinstance(await KnownConfigurations(js, names).confirm(RECEIVER), Invalid)
    known = KnownConfigurations(js, names)
    await known.start()
    assert known.policy(RECEIVER) is not None
    await known.stop()


async def test_a_put_at_the_same_moment_wins(js: JetStream, names: Names, faulty: FaultyJetStream) -> None:
    await put(js, names, FULL)
    theirs = msgspec.json.encode(MEMBERS | {"timeout_s": 7})

    async def overtake() -> None:
        await put(js, names, theirs)

    faulty.before_last[names.receiver(RECEIVER)].extend([nothing, overtake])
    assert await with_keys(faulty, names, NEW).seal_again(RECEIVER) == "sealed"
    found = await with_keys(js, names, NEW).get(RECEIVER)
    assert found is not None
    assert msgspec.json.decode(found.raw) == MEMBERS | {"timeout_s": 7}
    assert await keys_of(js, names) == {"new": 2}


async def nothing() -> None:
    """Let a read through unchanged."""


async def test_a_conditional_put_that_was_overtaken_is_refused(js: JetStream, names: Names) -> None:
    """The put is a conflict, not a new unencrypted secret."""
    configurations = with_keys(js, names, NO_KEYS)
    await mark_sealing(js, names, "new")
    revision = await put(js, names, FULL)
    await put(js, names, raw())
    assert isinstance(await configurations.put(RECEIVER, FULL, revision), Refused)


async def test_a_receiver_waits_while_its_key_is_missing(
    js: JetStream, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    stored(await with_keys(js, names, NEW).put(RECEIVER, FULL))
    stored(await with_keys(js, names, OLD).put(OTHER, FULL))
    ring, seen = KeyRing(OLD), list[str]()
    known = KnownConfigurations(js, names, keys=ring)
    await known.start()
    known.on_change(seen.append)
    assert known.policy(OTHER) is not None
    subscriber = known.subscriber(RECEIVER)
    assert known.policy(RECEIVER) is None
    assert subscriber is not None
    assert subscriber.events == (">",)
    assert known.problems(RECEIVER) == (
        "secrets[0]: is sealed by the key new; add that key to the key file (ANGARIUM_KEY_FILE)",
        "headers.authorization: is sealed by the key new; add that key to the key file (ANGARIUM_KEY_FILE)",
    )
    assert [known.needs_key(each) for each in (RECEIVER, OTHER, "acme.none")] == [True, False, False]
    assert await known.confirm(RECEIVER) == Invalid(known.problems(RECEIVER))
    assert "receiver.invalid" in caplog.messages
    known.open_again()
    assert seen == []
    ring.keys = NEW
    known.open_again()
    assert seen == [RECEIVER]
    assert known.problems(RECEIVER) == ()
    policy = known.policy(RECEIVER)
    assert policy is not None
    assert policy.secrets == (A,)
    known.open_again()
    assert seen == [RECEIVER]
    await known.stop()


async def test_a_key_is_what_a_receiver_needs_if_nothing_else_is_wrong(js: JetStream, names: Names) -> None:
    def lacks_profile(receiver: str, policy: Policy) -> tuple[str, ...]:
        return ("proxy: there is no such profile",) if policy.proxy == "eu" else ()

    configurations = with_keys(js, names, NEW)
    known = KnownConfigurations(js, names, keys=KeyRing(OLD), unusable=lacks_profile)
    await known.start()

    async def needs_key() -> bool:
        await known.catch_up()
        return known.needs_key(RECEIVER)

    stored(await configurations.put(RECEIVER, FULL))
    assert await needs_key()
    await put(js, names, b'{"url": 7}')
    assert not await needs_key()
    stored(
        await configurations.put(RECEIVER, msgspec.json.encode(msgspec.json.decode(FULL) | {"proxy": "eu"}))
    )
    assert not await needs_key()
    stored(await configurations.put(RECEIVER, FULL))
    assert await needs_key()
    stored(await configurations.delete(RECEIVER))
    assert not await needs_key()
    await known.stop()


async def test_a_receiver_whose_sealed_value_was_moved_waits_with_the_reason(
    js: JetStream, names: Names
) -> None:
    configurations = with_keys(js, names, NEW)
    stored(await configurations.put(RECEIVER, FULL))
    await put(js, names, (await kept(js, names)).data, OTHER)
    known = KnownConfigurations(js, names, keys=KeyRing(NEW))
    found = await known.confirm(OTHER)
    assert isinstance(found, Invalid)
    assert "secrets[0]: was changed, or sealed for another receiver" in found.problems[0]
    assert isinstance(await known.confirm(RECEIVER), Policy)
    left = await configurations.seal_again(OTHER)
    assert left == Unopened(found.problems)


async def test_a_removed_receiver_does_not_come_back_with_its_key(js: JetStream, names: Names) -> None:
    stored(await with_keys(js, names, NEW).put(RECEIVER, FULL))
    ring = KeyRing(OLD)
    known = KnownConfigurations(js, names, keys=ring)
    assert isinstance(await known.confirm(RECEIVER), Invalid)
    stored(await with_keys(js, names, NEW).delete(RECEIVER))
    await known.confirm(RECEIVER)
    ring.keys = NEW
    known.open_again()
    assert (known.policy(RECEIVER), known.is_known(RECEIVER)) == (None, False)


async def test_a_receiver_whose_key_was_purged_does_not_come_back(js: JetStream, names: Names) -> None:
    stored(await with_keys(js, names, NEW).put(RECEIVER, FULL))
    ring = KeyRing(OLD)
    known = KnownConfigurations(js, names, keys=ring)
    assert isinstance(await known.confirm(RECEIVER), Invalid)
    await js.purge_subject(names.receivers, names.receiver(RECEIVER))
    assert isinstance(await known.confirm(RECEIVER), Absent)
    ring.keys = NEW
    known.open_again()
    assert (known.policy(RECEIVER), known.is_known(RECEIVER)) == (None, False)


async def test_a_sealed_value_that_is_invalid_once_opened_is_a_problem(js: JetStream, names: Names) -> None:
    sealed = NEW.seal(RECEIVER, "secrets", "no secret")
    await put(js, names, raw(secrets=[sealed]))
    ring = KeyRing(OLD)
    known = KnownConfigurations(js, names, keys=ring)
    assert isinstance(await known.confirm(RECEIVER), Invalid)
    ring.keys = NEW
    known.open_again()
    assert known.problems(RECEIVER) == ("secrets[0]: must begin with whsec_, whs512_ or whsk_",)
    assert known.policy(RECEIVER) is None
    assert not known.needs_key(RECEIVER)


async def test_the_sealed_form_may_not_be_too_large(js: JetStream, names: Names) -> None:
    big = raw(secrets=[A], headers={f"x-{number}": "v" * 3900 for number in range(4)})
    filler = (64 << 10) - len(big) - 100
    value = big[:-1] + b" " * filler + b"}"
    stored(await with_keys(js, names, NEW).put(RECEIVER, value))
    padded = raw(**TOO_LARGE_SEALED)
    assert len(padded) < 64 << 10
    with pytest.raises(InvalidPolicy, match="bytes with sealed secrets, at most 65536"):
        await with_keys(js, names, NEW).put(RECEIVER, padded)
    await put(js, names, padded)
    paused = await with_keys(js, names, NEW).set_paused(RECEIVER, True)
    assert isinstance(paused, Invalid)
