"""Shares of a ledger: how they are divided, and that each fact is stored once, in all interleavings."""

from collections.abc import Iterator
from itertools import count

import pytest
from msgspec import Struct
from msgspec.structs import replace

from angarium.ledger.postgres.share_plan import exchange

SHARES = 16


@pytest.mark.parametrize("writers", range(1, 20))
def test_all_shares_are_held_in_equal_parts_after_two_rounds(writers: int) -> None:
    held: list[set[int]] = [set[int]() for _ in range(writers)]
    for _ in range(2):
        for mine in held:
            free = set(range(SHARES)) - {share for each in held for share in each}
            changes = exchange(mine, free, writers, SHARES)
            mine -= set(changes.given_up)
            mine |= set(changes.taken)
    assert sorted(share for mine in held for share in mine) == list(range(SHARES))
    assert max(map(len, held)) == -(-SHARES // writers)


def test_few_shards_are_parted_as_well() -> None:
    """An installation of four shards has the shares 0 to 3."""
    assert {share % 2 for share in exchange(range(SHARES), (), 2, SHARES).given_up} == {1}


JOURNAL = 3


class Writer(Struct, frozen=True):
    """A writer's knowledge: the epoch and the position of its share, and a count of facts up to there."""

    epoch: int | None = None
    position: int = 0
    counted: int | None = None


class World(Struct, frozen=True):
    """The row of the share, what was stored, and two processes."""

    holder: int | None = None
    epoch: int = 0
    position: int = 0
    counted: int = 0
    stored: tuple[int, ...] = ()
    stored_by_others: bool = False
    writers: tuple[Writer, ...] = (Writer(), Writer())


class Rules(Struct, frozen=True):
    """The parts of the fence, each with its switch."""

    position: bool = True
    holder: bool = True
    forgets: bool = True


def steps(world: World, rules: Rules) -> Iterator[World]:
    for number, writer in enumerate(world.writers):

        def now(known: Writer, at: int = number, **members: object) -> World:
            return replace(world, writers=(*world.writers[:at], known, *world.writers[at + 1 :]), **members)

        yield now(Writer())  # It dies, and another begins.
        if world.holder != number:  # Its holder's lease may have lapsed at any time.
            known = writer.counted if not rules.forgets else None
            taken = Writer(world.epoch + 1, world.position, known)
            if world.epoch < 4:
                yield now(taken, holder=number, epoch=world.epoch + 1)
        if writer.epoch is None:
            continue
        if writer.counted is None:
            yield now(replace(writer, counted=world.counted))
        elif writer.position < JOURNAL:
            held = world.holder == number and world.epoch == writer.epoch
            if (not rules.position or world.position == writer.position) and (not rules.holder or held):
                after, counted = writer.position + 1, writer.counted + 1
                yield now(
                    replace(writer, position=after, counted=counted),
                    position=after, counted=counted, stored=(*world.stored, after),
                    stored_by_others=world.stored_by_others or not held,
                )  # fmt: skip
            else:
                yield now(Writer())


def broken(rules: Rules) -> str | None:
    """The first breach of what has to hold, over all interleavings."""
    seen, left = {World()}, [World()]
    for _ in count():
        if not left:
            return None
        world = left.pop()
        if world.stored != tuple(range(1, world.position + 1)):
            return f"stored {world.stored}"
        if world.counted != world.position:
            return f"counted {world.counted} of {world.position}"
        if world.stored_by_others:
            return "stored by one that had lost the share"
        for after in steps(world, rules):
            if after not in seen:
                seen.add(after)
                left.append(after)
    raise AssertionError


def test_a_share_that_changes_hands_is_stored_once_and_counted_right() -> None:
    assert broken(Rules()) is None


@pytest.mark.parametrize(
    ("rules", "breach"),
    [
        (Rules(position=False, holder=False), "stored "),
        (Rules(holder=False), "stored by one that had lost the share"),
        (Rules(forgets=False), "counted "),
    ],
)
def test_each_part_of_the_fence_is_needed(rules: Rules, breach: str) -> None:
    assert (broken(rules) or "").startswith(breach)
