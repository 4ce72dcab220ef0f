"""No work is lost, and none is done twice: over failures, repeats at one time, and several processes."""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from angarium_receiver import (
    Answer,
    Delivery,
    MemoryNumbers,
    MemoryQueue,
    SqliteNumbers,
    SqliteQueue,
    asgi,
    wsgi,
)

from tests.unit.kit.receiving import BODY, environ, receiver
from tests.unit.kit.requests import headers

ONE = Delivery("evt_1", (1,), "order.created", 1, BODY)


def test_wsgi_work_that_fails_after_start_response_is_not_handled() -> None:
    """Nothing was sent yet, so the server answers 500. The retry gets 204, and the event is lost."""

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        if environ:
            raise KeyError("the work failed")
        yield b"ok"

    known = receiver(numbers=MemoryNumbers())
    guarded = wsgi.AngariumMiddleware(app, known)
    parts: Any = guarded(environ(), lambda status, headers: None)
    with pytest.raises(KeyError):
        list(parts)
    parts.close()
    again = known.receive("POST", headers(BODY), BODY)
    assert isinstance(again, Delivery), again


def test_wsgi_the_last_status_counts() -> None:
    """An error handler replaces the 200 by a 500 (PEP 3333: start_response with exc_info)."""

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        start_response("500 Internal Server Error", [], (KeyError, KeyError("x"), None))
        return [b"failed"]

    known = receiver(numbers=MemoryNumbers())
    list(wsgi.AngariumMiddleware(app, known)(environ(), lambda status, headers, *more: None))
    assert isinstance(known.receive("POST", headers(BODY), BODY), Delivery)


async def test_asgi_work_that_fails_after_the_start_is_not_handled() -> None:
    """Hypercorn sends the head with the first part of the body, so the sender gets a 500."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise KeyError("the work failed")

    known = receiver(numbers=MemoryNumbers())

    async def receive() -> Any:
        return {"type": "http.request", "body": BODY}

    async def send(message: Any) -> None: ...

    pairs = [(name.encode(), value.encode()) for name, value in headers(BODY).items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": pairs}
    with pytest.raises(KeyError):
        await asgi.AngariumMiddleware(app, known)(scope, receive, send)
    assert isinstance(known.receive("POST", headers(BODY), BODY), Delivery)


def test_a_second_request_of_a_number_in_work_is_not_handed_over() -> None:
    """The first timed out at the sender, its work goes on; the repeat must wait (503), not do it again."""
    known = receiver(numbers=MemoryNumbers())
    first = known.receive("POST", headers(BODY), BODY)
    assert isinstance(first, Delivery)
    assert isinstance(known.receive("POST", headers(BODY), BODY), Answer)


def test_two_requests_of_one_number_are_in_the_queue_once() -> None:
    """Two threads: both look, both put, then both are done."""
    barrier = threading.Barrier(2, timeout=2)

    class Slow(MemoryQueue):
        def put(self, delivery: Delivery) -> bool:
            with suppress(threading.BrokenBarrierError):
                barrier.wait()
            return super().put(delivery)

    queue = Slow(9)
    known = receiver(queue=queue, numbers=MemoryNumbers())
    threads = [threading.Thread(target=known.receive, args=("POST", headers(BODY), BODY)) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    done: list[Delivery] = []
    while queue.work_one(done.append, 0.0):
        pass
    assert len(done) == 1


def test_a_commit_that_fails_leaves_no_transaction(tmp_path: Path) -> None:
    """A reader holds the file longer than the time-out: then each request fails, until a restart."""
    file = tmp_path / "orders.db"
    shop = sqlite3.connect(file, timeout=0)
    shop.execute("CREATE TABLE orders (number INTEGER)")
    shop.executemany("INSERT INTO orders VALUES (?)", [(n,) for n in range(5000)])
    shop.commit()
    known = SqliteNumbers(shop)
    reader = sqlite3.connect(file)
    cursor = reader.execute("SELECT number FROM orders")
    cursor.fetchone()
    with pytest.raises(sqlite3.OperationalError, match="locked"), known.handling((1,)):
        pass
    cursor.close()
    reader.close()
    with known.handling((1,)) as arrival:
        assert arrival.new == (1,)
    shop.close()


def test_work_that_commits_is_an_error(tmp_path: Path) -> None:
    """`with store:` commits: a crash after it has the work done and the number unknown. It must be told."""
    shop = sqlite3.connect(tmp_path / "orders.db")
    shop.execute("CREATE TABLE orders (number INTEGER)")
    known = SqliteNumbers(shop)
    with pytest.raises(RuntimeError, match="must not commit"), known.handling((1,)), shop:
        shop.execute("INSERT INTO orders VALUES (1)")
    shop.close()


def test_events_of_two_receivers_with_one_id_are_both_queued(tmp_path: Path) -> None:
    """A fan-out gives two receivers the same webhook-id; an id may also come again after dedup_window."""
    queue = SqliteQueue(str(tmp_path / "queue.db"), 9)
    queue.put(ONE)
    queue.put(replace(ONE, numbers=(300,), body=b"other"))
    done: list[Delivery] = []
    while queue.work_one(done.append, 0.0):
        pass
    queue.close()
    assert [each.numbers for each in done] == [(1,), (300,)]


def test_two_workers_of_one_file_do_not_do_the_same(tmp_path: Path) -> None:
    """Two processes (gunicorn -w 2), here two objects: both take the oldest."""
    path = str(tmp_path / "queue.db")
    one, other = SqliteQueue(path, 9), SqliteQueue(path, 9)
    one.put(ONE)
    done: list[str] = []

    def work(delivery: Delivery) -> None:
        done.append("one")
        other.work_one(lambda _: done.append("other"), 0.0)

    one.work_one(work)
    one.close()
    other.close()
    assert done == ["one"]


def test_a_worker_process_wakes_for_what_the_web_process_puts(tmp_path: Path) -> None:
    """The condition is the process's own: a worker elsewhere with no time-out never wakes."""
    path = str(tmp_path / "queue.db")
    web, worker = SqliteQueue(path, 9), SqliteQueue(path, 9)
    done: list[Delivery] = []
    waiting = threading.Thread(target=worker.work_one, args=(done.append,), daemon=True)
    waiting.start()
    web.put(ONE)
    waiting.join(5)
    web.close()
    worker.close()
    assert done == [ONE]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_time_out_counts_while_another_waits(kind: str, tmp_path: Path) -> None:
    queue = MemoryQueue(1) if kind == "memory" else SqliteQueue(str(tmp_path / "q.db"), 1)
    first = threading.Thread(target=queue.work_one, args=(lambda _: None,), daemon=True)
    first.start()
    found: list[bool] = []
    second = threading.Thread(target=lambda: found.append(queue.work_one(lambda _: None, 0.1)), daemon=True)
    second.start()
    second.join(3)
    queue.put(ONE)
    first.join(3)
    if isinstance(queue, SqliteQueue):
        queue.close()
    assert found == [False]


def test_a_batch_says_which_of_its_events_are_new() -> None:
    """17 and 18 were handled, the answer was lost, and they come again in a larger batch."""
    batch = b'{"events": [{"sequence": 17}, {"sequence": 18}, {"sequence": 42}]}'
    known = receiver(numbers=MemoryNumbers())
    known.done(Delivery("acme.shop:17-18", (17, 18), "angarium.batch", 1, b""), 200)
    found = known.receive("POST", headers(batch, "17-42", event_id="acme.shop:17-42"), batch)
    assert isinstance(found, Delivery)
    assert found.new == (42,)
