"""Turns of batches: one for each tenant, however many batches it has."""

from msgspec.structs import replace

from streams.timed.due_queues import DueBatch, DueQueues

BATCH = DueBatch(0, 1, 1.0)


def turns(queues: DueQueues, count: int) -> list[tuple[str, int]]:
    """The tenants and seconds of the next turns, none of which finishes its batch."""
    found = list[tuple[str, int]]()
    for _ in range(count):
        batch = queues.next()
        found.append((batch.tenant, batch.start))
        queues.put_back(batch)
    return found


def test_a_tenant_with_many_batches_has_one_turn_like_others() -> None:
    """The batches of the flood came first, and are published one after the other."""
    queues = DueQueues()
    for second in range(100):
        queues.add(replace(BATCH, start=second, tenant="flood"))
    queues.add(replace(BATCH, start=100, tenant="other"))
    assert turns(queues, 4) == [("flood", 0), ("other", 100), ("flood", 0), ("other", 100)]


def test_a_new_second_does_not_wait_for_the_rest_of_split_ones() -> None:
    queues = DueQueues()
    for second in range(100):
        queues.add(replace(BATCH, start=second, is_split=True))
    queues.add(replace(BATCH, start=100))
    queues.add(replace(BATCH, start=101))
    assert turns(queues, 5) == [("", 0), ("", 100), ("", 1), ("", 101), ("", 2)]


def test_a_finished_batch_leaves_its_turn_to_the_next_one_of_its_tenant() -> None:
    queues = DueQueues()
    for second in (5, 6):
        queues.add(replace(BATCH, start=second, tenant="acme"))
    assert queues.next().start == 5
    assert queues.next().start == 6
    assert not queues
