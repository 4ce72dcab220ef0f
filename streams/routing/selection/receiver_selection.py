"""The selection of an event's receivers, by their regions and filters, in turns.

Nothing else runs while a filter is evaluated, and one event may have thousands of receivers with costly
filters. So other work has a turn after a few steps, and a selection continues only in its tenant's next turn
once it has taken all steps of this one. Results stay; the body is decoded again. Equal filters are evaluated
once.
"""

import asyncio
from collections.abc import Callable, Mapping

from actors.configuration.filters.evaluating import Filter, FilterAnswer, FilterResult, decode_body
from actors.machine.event import Event
from streams.routing.selection.selection_totals import FailedFilter, SelectionTotals
from streams.routing.selection.sending_rules import SendingRule

STEPS_A_TURN = 20_000
"""Steps after which a selection continues only in its tenant's next turn."""
STEPS_IN_A_ROW = 5_000
"""Steps after which other work has a turn: a millisecond at most."""
EVALUATION_STEPS = 10
"""Steps that each evaluation counts for in addition to its own."""
BYTES_A_STEP = 16
"""Bytes of a body that are decoded in the time of a step."""


class ReceiverSelection:
    """The selection among the `receivers` that subscribe to an event, with the `rules` of some of them.

    `on_failure`: called for each filter that cannot be evaluated. It must neither block nor raise.
    `steps_in_a_row`: the steps since other work had a turn.
    """

    __slots__ = ("_event", "_left", "_not_sent", "_on_failure", "_receivers", "_totals", "steps_in_a_row")

    def __init__(
        self,
        event: Event,
        receivers: tuple[str, ...],
        rules: Mapping[str, SendingRule],
        totals: SelectionTotals,
        on_failure: Callable[[FailedFilter], None] = lambda failed: None,
    ) -> None:
        self._event = event
        self._receivers = receivers
        self._totals = totals
        self._on_failure = on_failure
        self.steps_in_a_row = 0
        self._not_sent = set[str]()
        self._left: dict[str, tuple[Filter, list[str]]] = {}
        for receiver in receivers if rules else ():
            rule = rules.get(receiver)
            if rule is None:
                continue
            if not rule.admits(event.region):
                self._not_sent.add(receiver)
                totals.outside_region += 1
            elif rule.filter is not None:
                self._left.setdefault(rule.filter.text, (rule.filter, []))[1].append(receiver)

    @property
    def receivers(self) -> tuple[str, ...]:
        """The receivers that get the event, once all are evaluated."""
        if not self._not_sent:
            return self._receivers
        return tuple(each for each in self._receivers if each not in self._not_sent)

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to be evaluated."""
        return not self._left

    @property
    def is_unmatched(self) -> bool:
        """True if no receiver subscribes to the event."""
        return not self._receivers

    async def advance(self) -> bool:
        """Evaluate for one turn; returns True once all are evaluated."""
        if self.is_complete:
            return True
        body, left = decode_body(self._event.body), STEPS_A_TURN
        left -= await self._spent(len(self._event.body) // BYTES_A_STEP)
        while self._left:
            chosen, receivers = self._left.pop(next(iter(self._left)))
            answer = chosen.evaluate(body)
            self._take(answer, receivers)
            left -= await self._spent(answer.steps + EVALUATION_STEPS)
            if left <= 0:
                break
        return self.is_complete

    async def _spent(self, steps: int) -> int:
        """Let other work have a turn if it is time for that."""
        self.steps_in_a_row += steps
        if self.steps_in_a_row >= STEPS_IN_A_ROW:
            self.steps_in_a_row = 0
            await asyncio.sleep(0)
        return steps

    def _take(self, answer: FilterAnswer, receivers: list[str]) -> None:
        """Take the answer for the receivers that have this filter."""
        result = answer.result
        if result is FilterResult.PASSED:
            return
        self._not_sent.update(receivers)
        self._totals.filtered += len(receivers)
        if result is not FilterResult.STOPPED:
            event, reason = self._event, result.value
            self._totals.failures[reason] += len(receivers)
            failed = FailedFilter(tuple(receivers), event.type, event.position, reason, answer.why)
            self._on_failure(failed)
