"""Slots for jobs: which job gets one, whose turn ends, and that no tenant waits forever."""

import random

import pytest

from angarium.operations.jobs.job_slots import (
    SLOT_TURN_S,
    SLOTS_MAX,
    TENANT_SLOTS_MAX,
    JobKey,
    JobSlots,
    WaitingJob,
)


def job(tenant: str, number: int = 0, since: float = 0.0) -> WaitingJob:
    return WaitingJob(key(tenant, number), tenant, since)


def key(tenant: str, number: int = 0) -> JobKey:
    return "replay", f"{tenant}.r{number}"


def full(*tenants: str) -> JobSlots:
    """Slots that are taken since 0, each by one job."""
    slots = JobSlots()
    jobs = [job(tenant, number) for number, tenant in enumerate(tenants)]
    assert len(slots.fill(jobs, 0.0)) == len(tenants)
    return slots


def over(slots: JobSlots) -> list[str]:
    return sorted(owner for (_, owner), turn in slots._turns.items() if turn.over)


def test_slots_are_taken_up_to_both_bounds() -> None:
    slots = JobSlots()
    many = [job(tenant, number) for tenant in "abcdef" for number in range(5)]
    chosen = slots.fill(many, 0.0)
    assert len(chosen) == SLOTS_MAX
    per_tenant = [sum(owner.startswith(tenant) for _, owner in chosen) for tenant in "abcdef"]
    assert max(per_tenant) <= TENANT_SLOTS_MAX
    assert min(per_tenant) == 1  # Each tenant gets one before any gets two.


def test_jobs_keep_their_slots_while_no_other_waits() -> None:
    slots = full(*"aabbccdd")
    assert slots.fill([], 100 * SLOT_TURN_S) == []
    assert over(slots) == []


def test_a_turn_lasts_its_time_though_another_waits() -> None:
    slots = full(*"aabbccdd")
    assert slots.fill([job("e")], SLOT_TURN_S - 0.1) == []
    assert over(slots) == []
    assert slots.fill([job("e")], SLOT_TURN_S) == []
    assert len(over(slots)) == 1


def test_a_freed_slot_goes_to_the_tenant_that_waits_for_it_and_not_back() -> None:
    slots = full(*"aabbccdd")
    slots.fill([job("e", since=1.0)], SLOT_TURN_S)
    (left,) = (each for each in slots._turns if slots.is_over(each))
    assert slots.fill([job("e", since=1.0)], SLOT_TURN_S + 1) == []  # It is not free yet.
    slots.leave(left, SLOT_TURN_S + 2)
    back = WaitingJob(left, left[1][0], SLOT_TURN_S + 2)
    assert slots.fill([back, job("e", since=1.0)], SLOT_TURN_S + 2) == [key("e")]


def test_the_only_slot_of_a_tenant_does_not_become_the_second_one_of_another() -> None:
    slots = full(*"abcdefgh")
    slots.fill([job("a", 9)], SLOT_TURN_S)
    assert over(slots) == ["a.r0"]  # A tenant's own jobs take turns.


def test_as_many_turns_end_as_jobs_wait() -> None:
    slots = full(*"aabbccdd")
    for _ in range(3):
        slots.fill([job("e"), job("f")], SLOT_TURN_S)
        assert len(over(slots)) == 2


def test_a_new_tenant_queues_behind_waiting_tenants() -> None:
    """Otherwise tenants that come, end and come again would keep the others waiting."""
    slots = full(*"abcdefgh")
    waiting = [job("i", since=1.0), job("j", since=2.0)]
    slots.fill(waiting, 3.0)
    slots.leave(key("a", 0), 4.0)
    assert slots.fill([job("a", 9, since=4.0), *waiting], 4.0) == [key("i")]


@pytest.mark.parametrize("seed", range(4))
def test_each_tenant_gets_its_turns_with_any_number_of_jobs_of_others(seed: int) -> None:
    drawn = random.Random(seed)
    jobs = {f"t{number}": drawn.choice([1, 1, 2, 50]) for number in range(drawn.randint(9, 20))}
    slots, now = JobSlots(), 1.0
    since = {key(tenant, number): drawn.random() for tenant, count in jobs.items() for number in range(count)}
    held_s = dict.fromkeys(jobs, 0.0)
    while now < 60 * SLOT_TURN_S:
        for each in [each for each in since if each in slots and slots.is_over(each)]:
            slots.leave(each, now)
            since[each] = now
        slots.fill((job_of(each, at) for each, at in since.items() if each not in slots), now)
        for _, owner in (each for each in since if each in slots):
            held_s[owner.partition(".")[0]] += 2.0
        now += 2.0
    assert min(held_s.values()) > 0.4 * max(held_s.values()), held_s


def job_of(key: JobKey, since: float) -> WaitingJob:
    return WaitingJob(key, key[1].partition(".")[0], since)
