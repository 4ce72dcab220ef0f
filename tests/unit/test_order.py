"""The order of the tests for several workers."""

from tests.support.order import AT_ONCE, WHOLE, pieces

DEMO = [f"tests/e2e/commands/test_demo.py::{number}" for number in range(2)]
TESTS = [
    *(f"tests/contract/test_a.py::{number}" for number in range(2 * AT_ONCE + 1)),
    *(f"tests/e2e/pages/test_b.py::{number}" for number in range(3)),
    *DEMO,
    *(f"tests/unit/test_c.py::{number}" for number in range(3)),
    *(f"{WHOLE}::{number}" for number in range(2 * AT_ONCE)),
]


def test_each_test_is_in_one_piece_and_each_piece_in_one_module() -> None:
    waiting, computing = pieces(TESTS)
    assert sorted(index for piece in waiting + computing for index in piece) == list(range(len(TESTS)))
    assert all(len(set(map(module, piece))) == 1 for piece in waiting + computing)


def test_modules_that_take_long_come_first_and_alone() -> None:
    waiting, _ = pieces(TESTS)
    assert [[TESTS[index] for index in piece] for piece in waiting[:2]] == [[DEMO[0]], [DEMO[1]]]
    assert [(module(piece[0]), len(piece)) for piece in waiting[2:]] == [("tests/e2e/pages/test_b.py", 3)]


def test_others_share_what_their_module_starts() -> None:
    _, computing = pieces(TESTS)
    assert [(module(piece[0]), len(piece)) for piece in computing] == [
        (WHOLE, 2 * AT_ONCE),
        *[("tests/contract/test_a.py", number) for number in (AT_ONCE, AT_ONCE, 1)],
        ("tests/unit/test_c.py", 3),
    ]


def module(index: int) -> str:
    return TESTS[index].split("::")[0]
