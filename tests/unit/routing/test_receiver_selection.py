"""The selection of an event's receivers: regions, filters, turns, and what is counted of failures."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from actors.configuration.filters.evaluating import Filter, FilterAnswer, decode_body, filter_of
from actors.configuration.policy import Policy
from streams.routing.selection import receiver_selection as module
from streams.routing.selection.receiver_selection import ReceiverSelection
from streams.routing.selection.selection_totals import FailedFilter, SelectionTotals
from streams.routing.selection.sending_rules import SendingRule, SendingRules
from tests.unit.worlds.values import event, policy

BODY = b'{"total": 7}'
MANY = tuple(f"acme.r{number:03}" for number in range(200))


def rule(text: str | None = None, *regions: str) -> SendingRule:
    return SendingRule(regions, None if text is None else filter_of(text))


def selection(
    rules: dict[str, SendingRule], *, receivers: tuple[str, ...] = ("acme.a", "acme.b", "acme.c"),
    totals: SelectionTotals | None = None, body: bytes = BODY, **members: Any,
) -> ReceiverSelection:  # fmt: skip
    return ReceiverSelection(event(5, body=body, **members), receivers, rules, totals or SelectionTotals())


async def test_a_receiver_gets_what_its_region_and_its_filter_let_through() -> None:
    totals = SelectionTotals()
    rules = {"acme.a": rule("total > `9`"), "acme.b": rule("total", "eu"), "acme.c": rule(None, "us")}
    mine = selection(rules, totals=totals, region="eu")
    assert not mine.is_complete
    assert await mine.advance()
    assert mine.receivers == ("acme.b",)
    assert (totals.filtered, totals.outside_region) == (1, 1)
    assert set(totals.failures.values()) == {0}


async def test_an_event_without_a_region_goes_to_all_of_them() -> None:
    mine = selection({"acme.a": rule(None, "eu")})
    assert mine.is_complete
    assert mine.receivers == ("acme.a", "acme.b", "acme.c")


def test_a_body_is_decoded_only_if_a_filter_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(module, "decode_body")
    assert selection({"acme.a": rule(None, "eu")}, region="us").is_complete
    assert selection({"acme.a": rule("total", "eu")}, region="us").is_complete
    assert selection({}).receivers == ("acme.a", "acme.b", "acme.c")


async def test_the_body_is_decoded_once_and_equal_filters_are_evaluated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded, evaluated = list[bytes](), list[str]()
    decode, evaluate = decode_body, Filter.evaluate

    def counted(body: bytes) -> Any:
        decoded.append(body)
        return decode(body)

    def noted(given: Filter, body: Any) -> FilterAnswer:
        evaluated.append(given.text)
        return evaluate(given, body)

    monkeypatch.setattr(module, "decode_body", counted)
    monkeypatch.setattr(Filter, "evaluate", noted)
    rules = dict[str, SendingRule]()
    for number, each in enumerate(MANY):
        filter_of.cache_clear()  # As after many filters of others: equal texts are other objects.
        rules[each] = rule("total > `9`" if number % 2 else "total")
    mine = selection(rules, receivers=MANY)
    assert await mine.advance()
    assert mine.receivers == MANY[::2]
    assert (decoded, evaluated) == ([BODY], ["total", "total > `9`"])


async def test_a_filter_that_cannot_be_evaluated_is_counted_and_told_and_sends_nothing() -> None:
    told = list[FailedFilter]()
    totals = SelectionTotals()
    rules = {"acme.a": rule("length(total)"), "acme.b": rule("length(total)"), "acme.c": rule("total")}
    order = event(5, body=BODY, type="order.paid")
    mine = ReceiverSelection(order, tuple(rules), rules, totals, told.append)
    assert await mine.advance()
    assert mine.receivers == ("acme.c",)
    assert totals.failures == {"not_json": 0, "failed": 2, "too_costly": 0}
    assert totals.filtered == 2
    (failed,) = told
    assert failed == FailedFilter(
        ("acme.a", "acme.b"), "order.paid", 5, "failed",
        "length() takes a string, an array or an object, not number",
    )  # fmt: skip


async def test_dear_filters_go_on_in_the_next_turn_and_let_others_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each filter takes some 2,000 steps; a turn has ten of them, and others work after every few."""
    steps = list[int]()
    evaluate = Filter.evaluate

    def noted(given: Filter, body: Any) -> FilterAnswer:
        evaluation = evaluate(given, body)
        steps.append(evaluation.steps)
        return evaluation

    monkeypatch.setattr(Filter, "evaluate", noted)
    body = b'{"all": [%s]}' % b",".join([b"1"] * 500)
    rules = {each: rule(f"length(all[?@ != `{number}`]) > `0`") for number, each in enumerate(MANY)}
    mine = selection(rules, receivers=MANY, body=body)
    turns, ticks = 0, list[int]()

    async def others() -> None:
        while True:
            ticks.append(len(steps))
            await asyncio.sleep(0)

    working = asyncio.ensure_future(others())
    done = False
    while not done:
        before = len(steps)
        done = await mine.advance()
        turns += 1
        if not done:
            await asyncio.sleep(0)  # As the router does, which has other tenants.
        assert sum(steps[before:]) < module.STEPS_A_TURN + max(steps)
    working.cancel()
    assert mine.receivers == tuple(each for each in MANY if each != MANY[1])
    assert turns > 10
    for one, other in pairwise(ticks):
        assert sum(steps[one:other]) < module.STEPS_IN_A_ROW + max(steps)


def test_rules_follow_the_configurations() -> None:
    rules = SendingRules()
    for receiver, given in (
        ("acme.a", policy(filter="total")), ("acme.b", policy(region=("eu",))), ("acme.c", policy()),
    ):  # fmt: skip
        rules.put(receiver, given)
    assert rules.by_receiver("acme") == {"acme.a": rule("total"), "acme.b": rule(None, "eu")}
    assert rules.by_receiver("other") == {}
    rules.put("acme.a", policy(filter="total > `1`", region=("us",)))
    rules.put("acme.b", None)
    assert rules.by_receiver("acme") == {"acme.a": rule("total > `1`", "us")}
    rules.put("acme.a", Policy(url="https://a.example"))
    assert rules.by_receiver("acme") == {}
