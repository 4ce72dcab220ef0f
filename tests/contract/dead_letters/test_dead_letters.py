"""Dead letters as operators use them: found, read and dropped."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from actors.machine.facts import Burial
from streams.dead_letters.bury import DeadLetterWriter
from streams.dead_letters.letters import OWNERS_READ_MAX, DeadLetters, Letter, LetterFilter, LetterPage
from streams.installation.topology import Names
from streams.lost_tails.marks import Mark
from streams.nats.answers import StoredMessage
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from tests.support.installation import publish

ONE, OTHER, FOREIGN = "acme.billing", "acme.mail", "umbrella.billing"


@pytest.fixture
def dead(js: JetStream, names: Names) -> DeadLetters:
    return DeadLetters(js, names)


async def bury(js: JetStream, names: Names, receiver: str, number: int, reason: str = "expired") -> None:
    """An event that was published, numbered and given up."""
    position = await publish(js, names, receiver, b"%d" % number, {"Angarium-Id": f"e{number}"})
    burial = Burial(position=position, reason=reason, sequence=number, attempts=3, status=500)
    await DeadLetterWriter(js, names).bury(receiver, [burial])


def marks(positions: Iterable[int]) -> list[Mark]:
    return [Mark(position=each) for each in positions]


async def found(dead: DeadLetters, end: int | None = None, **wanted: Any) -> list[int]:
    """The sequences of the letters that are selected, which are the same from either end."""
    end = await dead.end() if end is None else end
    selection = LetterFilter(**wanted)
    oldest = [letter.position async for page in dead.pages(selection, end) for letter in page.letters]
    newest = [letter.position async for page in dead.newest(selection, end) for letter in page.letters]
    assert newest == oldest[::-1]
    return oldest


async def all_letters(dead: DeadLetters, sequences: Iterable[int]) -> list[Letter]:
    letters = await dead.letters(sequences)
    assert letters
    return letters


async def test_a_letter_says_what_was_published_and_why_it_is_here(
    js: JetStream, names: Names, dead: DeadLetters
) -> None:
    headers = {"Angarium-Id": "order-7", "Angarium-Type": "order.created"}
    position = await publish(js, names, ONE, b"\x00body", headers)
    burial = Burial(position=position, reason="rejected", sequence=7, attempts=5, status=422)
    await DeadLetterWriter(js, names).bury(ONE, [burial])
    letter = await dead.letter(1)
    assert letter is not None
    assert (letter.position, letter.receiver, letter.body) == (1, ONE, b"\x00body")
    assert (letter.reason, letter.sequence, letter.attempts, letter.status) == ("rejected", 7, 5, 422)
    assert (letter.event_id, letter.type, letter.problem) == ("order-7", "order.created", "")
    assert not letter.is_body_gone


async def test_a_letter_without_number_and_body(js: JetStream, names: Names, dead: DeadLetters) -> None:
    await DeadLetterWriter(js, names).bury(ONE, [Burial(position=77, reason="unknown_receiver")])
    letter = await dead.letter(1)
    assert letter is not None
    assert (letter.sequence, letter.attempts, letter.status, letter.is_body_gone) == (None, 0, None, True)


async def test_an_installation_without_letters(dead: DeadLetters) -> None:
    assert await dead.end() == 0
    assert await found(dead) == []
    assert await dead.letter(1) is None


async def test_without_a_stream_there_is_an_error(js: JetStream, prefix: str) -> None:
    with pytest.raises(ApiError):
        await DeadLetters(js, Names(prefix)).end()


async def test_letters_are_listed_by_receiver_by_tenant_and_all(
    js: JetStream, names: Names, dead: DeadLetters
) -> None:
    for receiver in (ONE, OTHER, FOREIGN, ONE):
        await bury(js, names, receiver, await dead.end() + 1)
    assert await found(dead) == [1, 2, 3, 4]
    assert await found(dead, receivers="acme.*") == [1, 2, 4]
    assert await found(dead, receivers=ONE) == [1, 4]
    assert await found(dead, receivers="acme.nobody") == []


async def test_letters_by_reason(js: JetStream, names: Names, dead: DeadLetters) -> None:
    for number, reason in enumerate(("expired", "rejected", "skipped", "rejected"), 1):
        await bury(js, names, ONE, number, reason)
    assert await found(dead, reasons=frozenset({"rejected"})) == [2, 4]
    assert await found(dead, reasons=frozenset({"expired", "skipped"})) == [1, 3]


async def test_letters_by_time(js: JetStream, names: Names, dead: DeadLetters) -> None:
    for number in range(1, 5):
        await bury(js, names, (ONE, OTHER)[number % 2], number)
        await asyncio.sleep(0.002)
    at = {letter.position: letter.at for letter in await all_letters(dead, range(1, 5))}
    assert await found(dead, since=at[2]) == [2, 3, 4]
    assert await found(dead, until=at[3]) == [1, 2]
    assert await found(dead, since=at[2], until=at[4]) == [2, 3]
    assert await found(dead, since=at[2], receivers=OTHER) == [3]
    assert await found(dead, since=at[4] + 60) == []
    assert await found(dead, until=at[1] - 60) == []


async def test_letters_come_in_pages_that_say_how_much_is_to_come(
    js: JetStream, names: Names, dead: DeadLetters
) -> None:
    await asyncio.gather(*(js.publish(names.dead(ONE), b"%d" % number) for number in range(600)))
    pages: list[LetterPage] = [page async for page in dead.pages(LetterFilter(), 550)]
    assert [(page.seen, page.unseen) for page in pages] == [(256, 344), (256, 88), (38, 0)]
    assert [letter.position for page in pages for letter in page.letters] == list(range(1, 551))


async def test_the_newest_letters_are_found_without_reading_all(
    js: JetStream, names: Names, dead: DeadLetters
) -> None:
    await asyncio.gather(*(js.publish(names.dead(ONE), b"%d" % number) for number in range(600)))
    page = await anext(dead.newest(LetterFilter(), 600))
    assert [letter.position for letter in page.letters] == list(range(600, 344, -1))


async def test_few_letters_in_a_long_range_are_found_with_few_requests(
    js: JetStream, names: Names, dead: DeadLetters
) -> None:
    """Others' letters and gaps are in between; the search widens its span, and reads nothing twice."""
    await asyncio.gather(*(js.publish(names.dead(OTHER), b"") for _ in range(700)))
    await bury(js, names, ONE, 1)
    await asyncio.gather(*(js.publish(names.dead(OTHER), b"") for _ in range(1100)))
    pages = [page async for page in dead.newest(LetterFilter(receivers=ONE), 1801)]
    assert [letter.position for page in pages for letter in page.letters] == [701]
    assert [page.unseen for page in pages] == [1545, 1033, 9, 0]


async def test_large_letters_are_listed_without_their_bodies_a_few_at_a_time(
    js: JetStream, names: Names, dead: DeadLetters
) -> None:
    """A span that has more than may be read at once is read in shorter ones, and none is left out."""
    for _ in range(40):
        await js.publish(names.dead(ONE), b"x" * 1000)
    await asyncio.gather(*(js.publish(names.dead(OTHER), b"") for _ in range(400)))
    pages = [page async for page in dead.newest(LetterFilter(receivers=ONE), 440, bytes_max=8000)]
    letters = [letter for page in pages for letter in page.letters]
    assert [(letter.position, letter.size) for letter in letters] == [(at, 1000) for at in range(40, 0, -1)]
    assert not any(hasattr(letter, "body") for letter in letters)
    assert max(len(page.letters) for page in pages) <= 8
    assert sum(page.size for page in pages) <= 3 * 40_000, "spans that were given up count"


async def test_a_letter_larger_than_may_be_read_at_once_is_listed(
    js: JetStream, names: Names, dead: DeadLetters
) -> None:
    for _ in range(3):
        await js.publish(names.dead(ONE), b"x" * 1000)
    pages = [page async for page in dead.newest(LetterFilter(), 3, bytes_max=100)]
    assert [[letter.position for letter in page.letters] for page in pages] == [[3], [2], [1]]


async def test_the_receivers_of_letters_are_found_a_few_at_a_time(
    js: JetStream, names: Names, dead: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server sends each letter with its body."""
    for receiver in (ONE, FOREIGN) * 4:
        await bury(js, names, receiver, await dead.end() + 1)
    reading, most, message = 0, 0, js.message

    async def counted(stream: str, sequence: int) -> StoredMessage | None:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        found = await message(stream, sequence)
        reading -= 1
        return found

    monkeypatch.setattr(js, "message", counted)
    assert await dead.receivers(range(1, 12)) == {at: (ONE, FOREIGN)[(at + 1) % 2] for at in range(1, 9)}
    assert most == OWNERS_READ_MAX


async def test_letters_that_come_during_a_search_are_not_read(
    js: JetStream, names: Names, dead: DeadLetters
) -> None:
    """Otherwise letters that are sent again, and become letters again, would be sent forever."""
    await bury(js, names, ONE, 1)
    end = await dead.end()
    await bury(js, names, ONE, 2)
    assert await found(dead, end) == [1]


async def test_only_named_letters_are_dropped(js: JetStream, names: Names, dead: DeadLetters) -> None:
    for number in range(1, 101):
        await bury(js, names, ONE, number)
    told: list[int] = []
    assert await dead.drop(marks(range(11, 91)), told.append) == 80
    assert sorted(told) == list(range(11, 91))
    assert await found(dead) == [*range(1, 11), *range(91, 101)]


async def test_a_missing_letter_can_be_dropped_too(js: JetStream, names: Names, dead: DeadLetters) -> None:
    for number in range(1, 4):
        await bury(js, names, ONE, number)
    assert await dead.drop(marks([1, 2])) == 2
    assert await dead.drop(marks([1, 2, 3, 9])) == 1
    assert await found(dead) == []


async def test_deleting_from_a_stream_that_denies_it_is_an_error(
    js: JetStream, names: Names, dead: DeadLetters
) -> None:
    await bury(js, names, ONE, 1)
    info = await js.stream_info(names.dead_letters)
    assert info is not None
    await js.stream_update(info.config | {"deny_delete": True})
    with pytest.raises(ApiError):
        await dead.drop(marks([1]))
    assert await found(dead) == [1]
