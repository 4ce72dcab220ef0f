"""Queries of a ledger, as operations make them: the answer, or a failed test."""

from typing import Any

from angarium.operations.failures import NotDone
from angarium.operations.ledger_queries.ledger_access import open_ledger
from angarium.settings import Settings


async def ask(settings: Settings, query: Any) -> Any:
    answer = await open_ledger(settings, query)
    assert not isinstance(answer, NotDone), answer
    return answer
