"""Questions about many things: the answers in order, and a bounded number under way."""

import asyncio

import pytest

from streams.bounded_gather import ASKED_AT_ONCE, gather_bounded, in_turns, sorted_in_turns


@pytest.mark.parametrize("asked_max", [ASKED_AT_ONCE, 2])
async def test_answers_come_in_the_order_of_the_things_and_few_questions_are_under_way(
    asked_max: int,
) -> None:
    under_way, most = 0, 0

    async def ask(thing: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(3 - thing % 3):
            await asyncio.sleep(0)
        under_way -= 1
        return thing * thing

    things = range(asked_max * 3)
    assert await gather_bounded(things, ask, asked_max) == [thing * thing for thing in things]
    assert most == asked_max


async def test_an_error_of_one_question_is_raised() -> None:
    async def ask(thing: int) -> int:
        if thing == 2:
            raise ValueError("no answer")
        return thing

    with pytest.raises(ValueError, match="no answer"):
        await gather_bounded(range(5), ask)


async def test_others_get_their_turns_while_many_things_are_gone_through() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    another = asyncio.create_task(other())
    assert [each async for each in in_turns(range(1000), 0.0)] == [*range(1000)]
    assert turns == 1000
    assert [each async for each in in_turns(range(1000), 3600.0)] == [*range(1000)]
    assert turns == 1000
    another.cancel()


async def test_texts_are_sorted_in_turns() -> None:
    texts = [str(number * 7919 % 10_007) for number in range(10_007)]
    assert await sorted_in_turns(texts) == sorted(texts)
    assert await sorted_in_turns([]) == []
