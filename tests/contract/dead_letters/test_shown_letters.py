"""A dead letter is shown as its receiver would have got it, or without its body, never with the original."""

from typing import Any

import pytest
from msgspec.structs import replace

from actors.configuration.transform import Transform, key_hash, transform_hash
from actors.machine.facts import Burial
from angarium.cli.dead_letters import table
from angarium.operations.configurations.proposal import PutResult
from angarium.operations.configurations.put import NewConfiguration, put_configuration
from angarium.operations.dead_letters.shown import (
    OTHER_TRANSFORM,
    SEALED_KEY,
    UNREADABLE,
    ShownLetter,
    shown_letter,
)
from angarium.operations.failures import NotDone
from streams.dead_letters.bury import DeadLetterWriter
from streams.dead_letters.letters import DeadLetters
from streams.nats.jetstream import JetStream
from streams.nats.protocol import LINES_MAX
from streams.resending.copies import copied_headers
from streams.sealing.keys import Keys
from tests.contract.support.configurations import NAME, URL, Configurations
from tests.support.installation import install, publish

BODY = b'{"email": "a@example.com", "total": 1.0}'
SHAPED = b'{"total":1.0}'
KEY, OTHER_KEY = "psk_" + "b2xk" * 8, "psk_" + "bmV3" * 8
DROP = {"drop": ["/email"]}
DROP_MARK = f"7 {transform_hash(Transform(drop=('/email',)), key_hash(KEY))}"
PSEUDONYMS = {"pseudonymize": ["/email"]}
PSEUDONYMS_MARK = f"7 {transform_hash(Transform(pseudonymize=('/email',)), key_hash(KEY))}"


class Letters(Configurations):
    """One letter, and how it is shown."""

    async def bury(self, body: bytes = BODY, mark: str = "", headers: dict[str, str] | None = None) -> None:
        position = await publish(self.js, self.names, NAME, body, headers or {})
        burial = Burial(position=position, reason="rejected", sequence=1, transform=mark)
        await DeadLetterWriter(self.js, self.names).bury(NAME, [burial])

    async def put(self, **members: Any) -> None:
        await self.store({"url": URL} | members)

    async def shown(self) -> ShownLetter:
        found = await shown_letter(self.to, 1)
        assert isinstance(found, ShownLetter), found
        printed = "\n".join(table.lines(found)) + str(table.document(found))
        assert (b"a@example.com" in (found.body or b"")) == ("a@example.com" in printed)
        return found


@pytest.fixture
async def letters(js: JetStream, prefix: str) -> Letters:
    return Letters(js, await install(js, prefix), prefix)


async def test_the_body_is_shaped_by_the_transform_of_its_event(letters: Letters) -> None:
    await letters.bury(mark=DROP_MARK)
    await letters.put(transform=DROP, pseudonym_key=KEY)
    shown = await letters.shown()
    assert (shown.body, shown.why) == (SHAPED, "")


@pytest.mark.parametrize("members", [
    {"transform": {"drop": ["/total"]}}, {"transform": None}, {},
    {"transform": PSEUDONYMS, "pseudonym_key": KEY},
])  # fmt: skip
async def test_the_body_is_hidden_if_another_transform_is_in_force(letters: Letters, members: Any) -> None:
    await letters.bury(mark=DROP_MARK)
    await letters.put(**members)
    shown = await letters.shown()
    assert (shown.body, shown.why) == (None, OTHER_TRANSFORM)


async def test_the_body_is_hidden_if_its_receiver_is_gone(letters: Letters) -> None:
    await letters.bury(mark=DROP_MARK)
    assert (await letters.shown()).body is None


@pytest.mark.parametrize(("key", "is_shown"), [(KEY, True), (OTHER_KEY, False)])
async def test_shown_pseudonyms_are_what_the_receiver_got(letters: Letters, key: str, is_shown: bool) -> None:
    await letters.bury(mark=PSEUDONYMS_MARK, headers={"Angarium-Region": "eu"})
    await letters.put(transform=PSEUDONYMS, pseudonym_key=key)
    shown = await letters.shown()
    assert (shown.body is not None) == is_shown
    assert shown.body is None or b'"ps_' in shown.body


async def test_a_process_that_cannot_open_the_key_hides_the_body(letters: Letters) -> None:
    await letters.bury(mark=PSEUDONYMS_MARK)
    without, keys = letters.to, Keys({"one": b"o" * 32})
    letters.to = replace(without, keys=lambda: keys)
    members = {"url": URL, "transform": PSEUDONYMS, "pseudonym_key": KEY}
    done = await put_configuration(letters.to, NAME, NewConfiguration(members=members))
    assert isinstance(done, PutResult), done
    assert KEY not in str(await letters.stored())
    assert (await letters.shown()).body is not None
    letters.to = without
    shown = await letters.shown()
    assert (shown.body, shown.why) == (None, SEALED_KEY)


async def test_a_letter_from_before_the_transform_is_shaped_too(letters: Letters) -> None:
    await letters.bury()
    assert (await letters.shown()).body == BODY
    await letters.put()
    assert (await letters.shown()).body == BODY
    await letters.put(transform=DROP)
    assert (await letters.shown()).body == SHAPED


async def test_a_body_that_cannot_be_shaped_is_hidden(letters: Letters) -> None:
    await letters.bury(b"a@example.com", mark=DROP_MARK)
    await letters.put(transform=DROP, pseudonym_key=KEY)
    shown = await letters.shown()
    assert shown.body is None
    assert "not JSON" in shown.why
    assert table.document(shown)["body_hidden"] == shown.why


async def test_the_body_is_hidden_if_the_configuration_is_invalid(letters: Letters) -> None:
    await letters.bury()
    await letters.put(order="any")
    shown = await letters.shown()
    assert (shown.body, shown.why) == (None, UNREADABLE)


async def test_a_letter_that_is_not_there_is_not_found(letters: Letters) -> None:
    found = await shown_letter(letters.to, 1)
    assert isinstance(found, NotDone)
    assert found.kind == "not_found"


async def test_a_redriven_letter_keeps_its_region(letters: Letters) -> None:
    """A letter may have no room for all headers of its event."""
    many = {f"X-{number}": "x" for number in range(LINES_MAX - 1)}
    await letters.bury(headers=many | {"Angarium-Region": "eu"})
    letter = await DeadLetters(letters.js, letters.names).letter(1)
    assert letter is not None
    assert copied_headers(letter.headers, "dead-1", "id")["Angarium-Region"] == "eu"
    assert "Angarium-Transform" not in copied_headers(letter.headers, "dead-1", "id")
