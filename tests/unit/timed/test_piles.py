"""Turns of piles: one for each tenant, however many piles it has."""

from msgspec.structs import replace

from streams.timed.piles import Pile, Piles

PILE = Pile(0, 1, 1.0)


def turns(piles: Piles, count: int) -> list[tuple[str, int]]:
    """The tenants and seconds of the next turns, none of which finishes its pile."""
    found = list[tuple[str, int]]()
    for _ in range(count):
        pile = piles.next()
        found.append((pile.tenant, pile.start))
        piles.put_back(pile)
    return found


def test_a_tenant_with_many_piles_has_one_turn_like_others() -> None:
    """The piles of the flood came first, and are opened one after the other."""
    piles = Piles()
    for second in range(100):
        piles.add(replace(PILE, start=second, tenant="flood"))
    piles.add(replace(PILE, start=100, tenant="other"))
    assert turns(piles, 4) == [("flood", 0), ("other", 100), ("flood", 0), ("other", 100)]


def test_a_new_second_does_not_wait_for_the_rest_of_split_ones() -> None:
    piles = Piles()
    for second in range(100):
        piles.add(replace(PILE, start=second, is_split=True))
    piles.add(replace(PILE, start=100))
    piles.add(replace(PILE, start=101))
    assert turns(piles, 5) == [("", 0), ("", 100), ("", 1), ("", 101), ("", 2)]


def test_a_finished_pile_leaves_its_turn_to_the_next_one_of_its_tenant() -> None:
    piles = Piles()
    for second in (5, 6):
        piles.add(replace(PILE, start=second, tenant="acme"))
    assert piles.next().start == 5
    assert piles.next().start == 6
    assert not piles
