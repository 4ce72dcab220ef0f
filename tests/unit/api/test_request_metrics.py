"""Requests of the HTTP API, counted by what they do and how they were answered."""

import time
from typing import Any, cast

from litestar.types import Message

from angarium.api.request_metrics import RequestTotals


def test_requests_count_by_operation_and_status() -> None:
    totals = RequestTotals()
    for status in (202, 202, 429):
        totals.add("publish", status, time.monotonic() - 0.2)
    assert totals.answered == {("publish", "2xx"): 2, ("publish", "4xx"): 1}
    assert totals.answer_s["publish"].sum >= 0.6


async def test_a_request_counts_once_when_its_answer_begins() -> None:
    """An answer that never ends, such as a tail, takes no longer than until its first byte."""
    totals, sent = RequestTotals(), list[str]()

    async def send(message: Message) -> None:
        sent.append(message["type"])

    for method, operation in (("GET", "read"), ("HEAD", "read"), ("PUT", "change")):
        counting = totals.counting(send, method)
        await counting(cast(Any, {"type": "http.response.start", "status": 200, "headers": []}))
        assert sum(totals.answer_s[operation].counts) == totals.answered[operation, "2xx"]
        await counting(cast(Any, {"type": "http.response.body", "body": b"", "more_body": False}))
    assert totals.answered == {("read", "2xx"): 2, ("change", "2xx"): 1}
    assert sent == ["http.response.start", "http.response.body"] * 3
