"""Seats for jobs: which job gets one, whose turn ends, and that no tenant waits forever."""

import random

import pytest

from angarium.operations.jobs.seats import SEAT_TURN_S, SEATS_MAX, TENANT_SEATS_MAX, JobKey, Seats, WaitingJob


def job(tenant: str, number: int = 0, since: float = 0.0) -> WaitingJob:
    return WaitingJob(key(tenant, number), tenant, since)


def key(tenant: str, number: int = 0) -> JobKey:
    return "replay", f"{tenant}.r{number}"


def full(*tenants: str) -> Seats:
    """Seats that are taken since 0, each by one job."""
    seats = Seats()
    jobs = [job(tenant, number) for number, tenant in enumerate(tenants)]
    assert len(seats.seat(jobs, 0.0)) == len(tenants)
    return seats


def over(seats: Seats) -> list[str]:
    return sorted(owner for (_, owner), turn in seats._turns.items() if turn.over)


def test_seats_are_taken_up_to_both_bounds() -> None:
    seats = Seats()
    many = [job(tenant, number) for tenant in "abcdef" for number in range(5)]
    seated = seats.seat(many, 0.0)
    assert len(seated) == SEATS_MAX
    per_tenant = [sum(owner.startswith(tenant) for _, owner in seated) for tenant in "abcdef"]
    assert max(per_tenant) <= TENANT_SEATS_MAX
    assert min(per_tenant) == 1  # Each tenant gets one before any gets two.


def test_jobs_keep_their_seats_while_no_other_waits() -> None:
    seats = full(*"aabbccdd")
    assert seats.seat([], 100 * SEAT_TURN_S) == []
    assert over(seats) == []


def test_a_turn_lasts_its_time_though_another_waits() -> None:
    seats = full(*"aabbccdd")
    assert seats.seat([job("e")], SEAT_TURN_S - 0.1) == []
    assert over(seats) == []
    assert seats.seat([job("e")], SEAT_TURN_S) == []
    assert len(over(seats)) == 1


def test_a_freed_seat_goes_to_the_tenant_that_waits_for_it_and_not_back() -> None:
    seats = full(*"aabbccdd")
    seats.seat([job("e", since=1.0)], SEAT_TURN_S)
    (left,) = (each for each in seats._turns if seats.is_over(each))
    assert seats.seat([job("e", since=1.0)], SEAT_TURN_S + 1) == []  # It is not free yet.
    seats.leave(left, SEAT_TURN_S + 2)
    back = WaitingJob(left, left[1][0], SEAT_TURN_S + 2)
    assert seats.seat([back, job("e", since=1.0)], SEAT_TURN_S + 2) == [key("e")]


def test_the_only_seat_of_a_tenant_does_not_become_the_second_one_of_another() -> None:
    seats = full(*"abcdefgh")
    seats.seat([job("a", 9)], SEAT_TURN_S)
    assert over(seats) == ["a.r0"]  # A tenant's own jobs take turns.


def test_as_many_turns_end_as_jobs_wait() -> None:
    seats = full(*"aabbccdd")
    for _ in range(3):
        seats.seat([job("e"), job("f")], SEAT_TURN_S)
        assert len(over(seats)) == 2


def test_a_new_tenant_queues_behind_those_that_wait() -> None:
    """Otherwise tenants that come, end and come again would keep the others waiting."""
    seats = full(*"abcdefgh")
    waiting = [job("i", since=1.0), job("j", since=2.0)]
    seats.seat(waiting, 3.0)
    seats.leave(key("a", 0), 4.0)
    assert seats.seat([job("a", 9, since=4.0), *waiting], 4.0) == [key("i")]


@pytest.mark.parametrize("seed", range(4))
def test_each_tenant_gets_its_turns_with_any_number_of_jobs_of_others(seed: int) -> None:
    drawn = random.Random(seed)
    jobs = {f"t{number}": drawn.choice([1, 1, 2, 50]) for number in range(drawn.randint(9, 20))}
    seats, now = Seats(), 1.0
    since = {key(tenant, number): drawn.random() for tenant, count in jobs.items() for number in range(count)}
    seated_s = dict.fromkeys(jobs, 0.0)
    while now < 60 * SEAT_TURN_S:
        for each in [each for each in since if each in seats and seats.is_over(each)]:
            seats.leave(each, now)
            since[each] = now
        seats.seat((job_of(each, at) for each, at in since.items() if each not in seats), now)
        for _, owner in (each for each in since if each in seats):
            seated_s[owner.partition(".")[0]] += 2.0
        now += 2.0
    assert min(seated_s.values()) > 0.4 * max(seated_s.values()), seated_s


def job_of(key: JobKey, since: float) -> WaitingJob:
    return WaitingJob(key, key[1].partition(".")[0], since)
