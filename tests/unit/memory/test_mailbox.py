"""The bounds of a mailbox, in events and in bytes."""

from msgspec.structs import replace

from actors.configuration.policy import BatchLimits
from actors.memory.mailbox import MAILBOX_BYTES_MAX, MAILBOX_MAX, Mailbox
from tests.unit.worlds.values import event

HALF = replace(event(1), body=b"x" * (MAILBOX_BYTES_MAX // 2))


def filled(count: int) -> Mailbox:
    mailbox = Mailbox()
    for position in range(1, count + 1):
        mailbox.append(event(position))
    return mailbox


def test_a_mailbox_holds_a_limited_number_of_events() -> None:
    assert filled(MAILBOX_MAX - 1).fits(event(99))
    assert not filled(MAILBOX_MAX).fits(event(99))


def test_a_mailbox_holds_a_limited_number_of_bytes_but_always_one_event() -> None:
    mailbox = Mailbox()
    assert mailbox.fits(replace(HALF, body=HALF.body * 9))
    mailbox.append(HALF)
    assert not mailbox.fits(HALF)
    assert mailbox.fits(event(2))
    mailbox.pop()
    mailbox.put_back([HALF])
    assert not mailbox.fits(HALF)
    assert mailbox.clear() == [HALF]
    assert mailbox.fits(HALF)


def test_the_head_is_the_oldest() -> None:
    mailbox = filled(3)
    assert mailbox.head == event(1)
    assert mailbox.pop() == event(1)
    mailbox.put_back([event(1)])
    assert mailbox.head == event(1)
    assert [mailbox.holds(position) for position in (0, 1, 3, 4)] == [False, True, True, False]
    mailbox.drop_to(2)
    assert mailbox.head == event(3)
    mailbox.drop_to(9)
    assert len(mailbox) == 0


def test_a_mailbox_has_additional_room_for_two_batches() -> None:
    mailbox = filled(MAILBOX_MAX + 199)
    mailbox.hold_batches(BatchLimits(max_events=100))
    assert mailbox.fits(event(999))
    mailbox = filled(MAILBOX_MAX + 200)
    mailbox.hold_batches(BatchLimits(max_events=100))
    assert not mailbox.fits(event(999))
    mailbox.hold_batches(None)
    assert not filled(MAILBOX_MAX).fits(event(999))


def test_a_batch_is_taken_out_without_its_duplicates_and_put_back_in_order() -> None:
    mailbox = filled(5)
    mailbox.take([event(1), event(3)])
    assert [each.position for each in mailbox.events] == [2, 4, 5]
    mailbox.put_back([event(1), event(3)])
    assert [each.position for each in mailbox.events] == [1, 2, 3, 4, 5]
    assert [each.position for each in mailbox.clear(after=3)] == [4, 5]
    assert [each.position for each in mailbox.events] == [1, 2, 3]
