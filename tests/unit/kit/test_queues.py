"""Queues are bounded, keep the order, and keep a delivery until its work is done."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from angarium_receiver import Delivery, MemoryQueue, Queue, SqliteQueue

ONE = Delivery("evt_1", (1,), "order.created", 1, b"\xff\x00", "dead-3", "text/plain")
TWO, THREE = replace(ONE, id="evt_2", numbers=(2,)), replace(ONE, id="evt_3", numbers=(3,))


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    if request.param == "memory":
        yield MemoryQueue(2)
        return
    stored = SqliteQueue(str(tmp_path / "queue.db"), 2)
    yield stored
    stored.close()


def test_a_queue_is_worked_in_order_and_takes_no_more_than_it_holds(queue: Queue) -> None:
    assert [queue.put(each) for each in (ONE, TWO, THREE)] == [True, True, False]
    done: list[Delivery] = []
    assert queue.work_one(done.append)
    assert queue.put(THREE)
    assert [queue.work_one(done.append, 0.0) for _ in range(3)] == [True, True, False]
    assert done == [ONE, TWO, THREE]


def test_work_that_fails_comes_again_first(queue: Queue) -> None:
    queue.put(ONE)
    queue.put(TWO)
    done: list[Delivery] = []

    def fail(delivery: Delivery) -> None:
        raise KeyError(delivery.id)

    with pytest.raises(KeyError, match="evt_1"):
        queue.work_one(fail)
    queue.work_one(done.append)
    assert done == [ONE]


def test_a_worker_wakes_for_a_delivery(queue: Queue) -> None:
    done: list[Delivery] = []
    worker = threading.Thread(target=queue.work_one, args=(done.append, 30.0))
    worker.start()
    queue.put(ONE)
    worker.join(30.0)
    assert done == [ONE]


def test_deliveries_in_a_file_outlive_the_process(tmp_path: Path) -> None:
    path = str(tmp_path / "queue.db")
    before = SqliteQueue(path, 2)
    before.put(ONE)
    assert before.put(ONE)
    before.close()
    after = SqliteQueue(path, 2)
    done: list[Delivery] = []
    assert after.work_one(done.append)
    assert not after.work_one(done.append, 0.0)
    assert done == [ONE]
    after.close()


@pytest.mark.parametrize("length", [0, -1])
def test_a_queue_without_room_is_an_error(length: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="room"):
        MemoryQueue(length)
    with pytest.raises(ValueError, match="room"):
        SqliteQueue(str(tmp_path / "queue.db"), length)
