"""`test-transform`: how the last events would look to a receiver, on the real server."""

from typing import Any

import msgspec
import pytest

from actors.configuration.transform import Transform
from angarium.operations.configurations.trials.transform_trial import (
    EVENTS_MAX,
    TransformTrial,
    try_transform,
)
from angarium.operations.failures import NotDone
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from tests.contract.support.configurations import NAME, URL, Configurations
from tests.support.installation import install

KEY = "psk_" + "b2xk" * 8
DROP = {"drop": ["/email"]}
PSEUDONYMS = Transform(pseudonymize=("/email",))
BODY = b'{"id": 7, "email": "a@example.com"}'


class Trials(Configurations):
    """One receiver, events, and how they would look to it."""

    async def put(self, **members: Any) -> None:
        raw = msgspec.json.encode({"url": URL} | members)
        await self.to.js.publish(self.to.names.receiver(NAME), raw)

    async def publish(self, body: bytes = BODY, kind: str = "order", region: str = "") -> None:
        headers = {"Angarium-Region": region} if region else None
        subject = self.to.names.publish_event(NAME.split(".")[0], kind)
        assert isinstance(await self.to.js.publish(subject, body, headers), Stored)

    async def tried(self, transform: Transform | None = None, last: int = 10) -> TransformTrial:
        found = await try_transform(self.to, NAME, transform, last)
        assert isinstance(found, TransformTrial), found
        return found

    async def denied(self, transform: Transform | None = None, last: int = 10) -> NotDone:
        found = await try_transform(self.to, NAME, transform, last)
        assert isinstance(found, NotDone), found
        return found


@pytest.fixture
async def trials(js: JetStream, prefix: str) -> Trials:
    return Trials(js, await install(js, prefix), prefix)


async def test_the_last_events_are_shown_as_the_receiver_would_get_them(trials: Trials) -> None:
    await trials.put(transform=DROP, events=["order"], region="eu", filter="id == `0`")
    for body, kind, region in (
        (b'{"old": 1}', "order", ""), (BODY, "order", "eu"), (BODY, "user", ""), (BODY, "order", "us"),
        (b"a@example.com", "order", ""),
    ):  # fmt: skip
        await trials.publish(body, kind, region)
    found = await trials.tried(last=2)
    assert [(each.type, each.body, each.why) for each in found.events] == [
        ("order", '{"id":7}', ""), ("order", None, "it is not JSON in UTF-8"),
    ]  # fmt: skip
    assert (found.key, found.cut, found.transform) == ("own", False, Transform(drop=("/email",)))


async def test_pseudonyms_have_the_key_of_the_receiver_or_one_that_is_made_up(trials: Trials) -> None:
    await trials.publish()
    found = list[TransformTrial]()
    for members in ({"pseudonym_key": KEY}, {"pseudonym_key": KEY}, {}, {}):
        await trials.put(**members)
        found.append(await trials.tried(PSEUDONYMS))
    assert [each.key for each in found] == ["own", "own", "made_up", "made_up"]
    own, again, *made_up = [each.events[0].body for each in found]
    assert own == again
    assert len({own, *made_up}) == 3
    assert "a@example.com" not in str(found)


async def test_no_trial_shows_the_original_or_goes_beyond_its_bounds(trials: Trials) -> None:
    """A transform without pointers would show the originals."""
    assert (await trials.denied()).kind == "not_found"
    await trials.put()
    await trials.publish()
    for transform, last, why in (
        (None, 10, "has no transform; give one to try"),
        (Transform(), 10, "transform: names no place"),
        (Transform(drop=("email",)), 10, "transform.drop[0]: not a JSON pointer"),
        (PSEUDONYMS, 0, f"the number of events must be 1 to {EVENTS_MAX}"),
        (PSEUDONYMS, EVENTS_MAX + 1, f"the number of events must be 1 to {EVENTS_MAX}"),
    ):
        assert why in (await trials.denied(transform, last)).text
    await trials.put(url="ftp://a")
    assert (await trials.denied(PSEUDONYMS)).kind == "refused"
