"""The marks of a reader: messages that the stream must still have before the next consumer begins."""

from streams.lost_tails.marks import NO_MARK, Mark
from streams.reading.read_marks import ReadMarks
from streams.reading.reply_subject import DeliveryInfo


def message(position: int) -> DeliveryInfo:
    return DeliveryInfo(position=position, number=position, stored_at=float(position), pending=0)


def mark(position: int) -> Mark:
    return Mark(position=position, stored_at=float(position))


def trusted(*positions: int) -> ReadMarks:
    """Marks of a reader whose consumer was compared, and has passed on these messages."""
    marks = ReadMarks()
    marks.is_compared = True
    for position in positions:
        marks.newest = message(position)
    return marks


def test_the_highest_message_is_the_one_passed_on_or_the_known_one() -> None:
    assert ReadMarks().highest(NO_MARK) == NO_MARK
    assert trusted(3).highest(NO_MARK) == mark(3)
    assert trusted(3).highest(mark(5)) == mark(5)
    assert trusted(5).highest(mark(3)) == mark(5)


def test_a_message_is_remembered_although_a_lower_one_comes_again() -> None:
    marks = trusted(5)
    assert marks.highest(NO_MARK) == mark(5)
    marks.newest = message(2)
    assert marks.highest(NO_MARK) == mark(5)


def test_after_a_doubt_all_that_was_passed_on_or_read_in_other_ways_is_compared() -> None:
    marks = trusted(3)
    marks.doubt(mark(7))
    assert not marks.is_compared
    assert marks.to_compare(mark(7), 0) == (mark(3), mark(7))


def test_each_message_is_compared_once() -> None:
    marks = trusted(3)
    marks.doubt(NO_MARK)
    assert marks.to_compare(NO_MARK, 2) == (mark(3),)


def test_a_second_doubt_does_not_take_for_passed_on_what_nothing_was_compared_with() -> None:
    """No consumer was trusted between two doubts, so marks from that time may belong to another stream."""
    marks = trusted(3)
    marks.doubt(mark(7))
    marks.doubt(mark(9))
    assert marks.to_compare(mark(9), 0) == (mark(3), mark(9))


def test_the_message_before_a_consumer_is_compared_and_its_time_if_known() -> None:
    assert ReadMarks().to_compare(NO_MARK, 4) == (NO_MARK, Mark(position=4))
    assert trusted(4).to_compare(NO_MARK, 4) == (NO_MARK, mark(4))
    assert trusted().to_compare(mark(4), 4) == (NO_MARK, mark(4))
