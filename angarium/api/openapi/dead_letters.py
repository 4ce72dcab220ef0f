"""Dead letters: what the operations on them take and answer, and their description."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from angarium.api.openapi.jobs import ACCEPTED, KEY
from angarium.api.openapi.shared_texts import body, operation, problems, result

LETTERS_MAX = 1000
"""Letters that one request sends again."""
NUMBER_MAX = 10**15

Reason = Literal[
    "expired",
    "attempts",
    "rejected",
    "overflow",
    "evicted",
    "skipped",
    "unknown_receiver",
    "malformed",
    "transform",
]


class LetterItem(Struct, frozen=True, kw_only=True):
    """A dead letter in a list. `number` names it, `sequence` is the receiver's number of the event.

    `bytes` is null if only the headers were kept.
    """

    number: int
    receiver: str
    sequence: int | None
    reason: str
    at: str
    attempts: int | None
    status: int | None
    type: str
    id: str
    bytes: int | None


class DeadLetterPage(Struct, frozen=True, kw_only=True):
    """Dead letters, newest first; a page may be short, and only a null `next_cursor` ends the list."""

    letters: list[LetterItem]
    next_cursor: str | None


class LetterDocument(LetterItem, frozen=True, kw_only=True):
    """A dead letter with its body, in base64 if that is not UTF-8, and the start of the last response.

    The body is as the receiver would have got it; if it may not be shown, `body_hidden` says why.
    """

    response: str | None
    headers: dict[str, str]
    body: str | None = None
    body_base64: str | None = None
    body_hidden: str | None = None


class RedriveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dead letters to send again, oldest first: by `numbers`, by selection, or `all`.

    With a `limit` or a `cursor`, a request sends one page of them; without, it sends all of them.
    """

    numbers: (
        Annotated[
            tuple[Annotated[int, Meta(ge=1, le=NUMBER_MAX)], ...], Meta(min_length=1, max_length=LETTERS_MAX)
        ]
        | None
    ) = None
    all: bool = False
    receiver: Annotated[str, Meta(max_length=64)] | None = None
    reasons: Annotated[tuple[Reason, ...], Meta(max_length=9)] = ()
    since: Annotated[datetime, Meta(tz=True)] | None = None
    until: Annotated[datetime, Meta(tz=True)] | None = None
    limit: Annotated[int, Meta(ge=1, le=LETTERS_MAX)] | None = None
    cursor: Annotated[str, Meta(pattern="^[0-9]{1,15}$")] | None = None


class RedriveResult(Struct, frozen=True, kw_only=True):
    """The result: `redriven` were sent; `left` could not be sent, by reason; `missing` do not exist.

    `stopped` says why no more could be sent. If `next_cursor` is not null, more letters are left: repeat the
    request with it as `cursor`.
    """

    redriven: int
    left: dict[str, list[int]]
    missing: list[int]
    stopped: str | None
    next_cursor: str | None


_ITEM = {
    "number": 7, "receiver": "acme.billing", "sequence": 17, "reason": "rejected",
    "at": "2026-11-22T20:00:00Z",
    "attempts": 5, "status": 422, "type": "order.created", "id": "order-7-created", "bytes": 11,
}  # fmt: skip
LIST_DEAD_LETTERS: dict[str, Any] = {
    "summary": "List dead letters, newest first",
    "tags": ["dead letters"],
    "responses": {
        200: result(DeadLetterPage, "A page of dead letters", {"letters": [_ITEM], "next_cursor": "7"}),
        **problems(400, 422),
    },
}
GET_DEAD_LETTER: dict[str, Any] = {
    "summary": "Show a dead letter",
    "tags": ["dead letters"],
    "responses": {
        200: result(LetterDocument, "The dead letter with its body and headers", _ITEM | {
            "response": "no such order", "headers": {}, "body": '{"order":7}', "body_base64": None,
            "body_hidden": None,
        }),
        **problems(422),
    },
}  # fmt: skip
DROP_DEAD_LETTER: dict[str, Any] = {
    "summary": "Delete a dead letter permanently",
    "tags": ["dead letters"],
    "responses": {200: result(LetterItem, "The dropped letter", _ITEM), **problems(422)},
}
REDRIVE_DEAD_LETTERS: dict[str, Any] = {
    "summary": "Send dead letters to their receivers again",
    "description": "Each letter is sent exactly once, even if a process dies half-way. It becomes a new "
    "event of its receiver, with a new number and its old id. Up to 1,000 letters are sent at once; more "
    "become a job (202), of which a tenant has one at a time. If one is unfinished, the answer is 409 and "
    "`Location` names it.",
    "tags": ["dead letters"],
    "operation_class": operation(
        body(
            "The letters: by `numbers`, by `receiver`, `reasons`, `since` and `until`, or `all`.",
            {"application/json": {"receiver": "billing"}},
            "RedriveRequest",
        ),
        [KEY],
    ),
    "responses": {
        200: result(RedriveResult, "The result for each letter", {
            "redriven": 12, "left": {"gone": [9]}, "missing": [], "stopped": None, "next_cursor": None,
        }),
        202: ACCEPTED,
        **problems(400, 408, 409, 413, 415, 422),
    },
}  # fmt: skip
