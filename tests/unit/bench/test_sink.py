"""The bench's sink: wrong figures from it would be believed."""

import pytest

from angarium.bench.sink import Sink, numbers_of, percentile, stamp_of
from angarium.delivery.formats import envelope
from tests.unit.worlds.values import event


def counted(*numbers: int) -> Sink:
    """A sink to which one receiver's deliveries came under these numbers."""
    sink = Sink()
    for number in numbers:
        sink.count(b"/1", number, b"1795233800.123456")
    return sink


def test_a_sink_without_arrivals_reports_zeros() -> None:
    report = Sink().arrivals.report()
    assert (report.deliveries, report.p50_ms, report.p99_ms) == (0, 0.0, 0.0)


def test_deliveries_in_order_are_counted() -> None:
    report = counted(1, 2, 3).arrivals.report()
    assert (report.deliveries, report.repeats, report.disordered) == (3, 0, 0)


def test_a_repeat_is_not_a_delivery() -> None:
    report = counted(1, 2, 2, 1, 3).arrivals.report()
    assert (report.deliveries, report.repeats, report.disordered) == (3, 2, 0)


def test_an_event_that_overtakes_is_out_of_order() -> None:
    assert counted(1, 3).arrivals.report().disordered == 1


def test_an_overtaken_event_is_a_delivery_once() -> None:
    """Overtaking is intended in relaxed order."""
    report = counted(1, 4, 2, 3, 2, 5).arrivals.report()
    assert (report.deliveries, report.repeats, report.disordered) == (5, 1, 1)


def test_each_receiver_has_numbers_of_its_own() -> None:
    sink = counted(1, 2)
    sink.count(b"/2", 1, b"1795233800.123456")
    assert sink.arrivals.report().disordered == 0


def test_a_batch_is_as_late_as_its_oldest_event() -> None:
    stamped = [b"1795233800.123456" + b" " * 9, b"1795233801.654321" + b" " * 9]
    events = [event(position, body=each) for position, each in enumerate(stamped, 1)]
    assert [stamp_of(each) for each in stamped] == [b"1795233800.123456", b"1795233801.654321"]
    assert stamp_of(envelope([(each, each.position) for each in events])) == b"1795233800.123456"


@pytest.mark.parametrize(("header", "numbers"), [(b"7", [7]), (b"7-9", [7, 8, 9]), (b"7-7", [7]), (b"0", [])])
def test_a_request_has_the_numbers_of_its_events(header: bytes, numbers: list[int]) -> None:
    """The header of a request of the bare loops is 0, and they are not counted."""
    assert list(numbers_of(header)) == numbers


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert percentile([], 0.5) == 0.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.51) == 3.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.99) == 4.0
