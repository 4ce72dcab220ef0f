"""The configurations of receivers: what the operations on them answer, and their description."""

from typing import Any

from litestar.openapi.datastructures import ResponseSpec
from msgspec import Struct

from angarium.api.openapi.configuration import CONFIGURATION, PATCH
from angarium.api.openapi.parts import body, header_parameter, operation, problems, result
from angarium.operations.receiver_health.health import ReceiverHealth
from angarium.operations.receivers.changes import MemberChange


class ReceiverItem(Struct, frozen=True, kw_only=True):
    """A receiver in a list; `problems` say why its configuration is not in force.

    `health` is null unless it is asked for.
    """

    receiver: str
    name: str
    revision: int
    configuration: dict[str, Any]
    problems: list[str]
    health: ReceiverHealth | None


class StoredReceiver(Struct, frozen=True, kw_only=True):
    """A configuration that was stored; `changes` are those of the one that it replaced.

    `secret` is the one that was made for it, `secrets` how many sign now. `notes` say why nodes may not
    post to a new URL.
    """

    receiver: str
    revision: int
    replaced: bool
    secret: str | None
    secrets: int
    changes: list[MemberChange]
    notes: list[str]


class ReceiverPage(Struct, frozen=True, kw_only=True):
    """Receivers in alphabetical order; without a `next_cursor` they are the last."""

    receivers: list[ReceiverItem]
    next_cursor: str | None


class RemovedReceiver(Struct, frozen=True, kw_only=True):
    """A receiver that is gone.

    `discarded` of its events waited, or at most this number if it is not `certain`; `recorded` tells whether
    the owner has said already that all of them are discarded.
    """

    receiver: str
    discarded: int
    certain: bool
    recorded: bool


HEALTH_EXAMPLE = {
    "phase": "active", "waiting": 420, "oldest_at": "2026-11-22T20:00:00.000Z", "failing_since": None,
    "disabled": None, "in_per_s": 3.2, "out_per_s": 5.0, "drain_s": 233.3, "limited_by": "rate",
}  # fmt: skip
_URL = "https://example.com/hook"
_STORED = {
    "url": _URL,
    "rate": {"limit": 10},
    "secrets": ["…"],
    "headers": {"x-team": "…"},
}
_PUT = {
    "receiver": "acme.billing", "revision": 8, "replaced": True, "secret": None, "secrets": 1,
    "changes": [{"member": "rate", "old": "10/second", "new": "5/second", "lost": False}], "notes": [],
}  # fmt: skip
_MADE = _PUT | {
    "replaced": False, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "changes": [], "revision": 1,
}  # fmt: skip
_MERGE = "application/merge-patch+json"
_TAG = '"7"'
_MATCH = header_parameter("If-Match", "The ETag of the configuration that is meant, or *.", _TAG)
_NONE_MATCH = header_parameter("If-None-Match", "* stores it only where there is no such receiver.", "*")
_KNOWN = header_parameter("If-None-Match", "The ETag that the client has; 304 where it still holds.", _TAG)
_DONE = "It is stored; nodes take it up within a second"

GET_RECEIVER: dict[str, Any] = {
    "summary": "Show the configuration of a receiver, with … for what is secret",
    "tags": ["receivers"],
    "operation_class": operation(parameters=[_KNOWN]),
    "responses": {
        200: result(dict[str, Any], "The configuration as it was put; its revision is the ETag", _STORED),
        304: ResponseSpec(None, description="The client has it", generate_examples=False),
        **problems(400, 409, 422),
    },
}
LIST_RECEIVERS: dict[str, Any] = {
    "summary": "List the receivers of a tenant",
    "tags": ["receivers"],
    "responses": {
        200: result(ReceiverPage, "A page of them", {
            "receivers": [{
                "receiver": "acme.billing", "name": "billing", "revision": 7, "configuration": _STORED,
                "problems": [], "health": HEALTH_EXAMPLE,
            }],
            "next_cursor": "after:billing",
        }),
        **problems(422),
    },
}  # fmt: skip
PUT_RECEIVER: dict[str, Any] = {
    "summary": "Store the whole configuration of a receiver",
    "description": "Members that are left out take their defaults; secrets stay as they are. A value … stays "
    "as it is stored. A new receiver without secrets gets one, which only this answer shows; "
    '"secrets": [] leaves it unsigned. What would be lost of a stored configuration needs If-Match.',
    "tags": ["receivers"],
    "operation_class": operation(
        body("The configuration.", {"application/json": {"url": _URL, "rate": "10/second"}}, CONFIGURATION),
        [_MATCH, _NONE_MATCH],
    ),
    "responses": {
        200: result(StoredReceiver, _DONE, _PUT),
        201: result(StoredReceiver, "The receiver is new; " + _DONE[0].lower() + _DONE[1:], _MADE),
        **problems(400, 408, 409, 412, 413, 415, 422, 428),
    },
}  # fmt: skip
PATCH_RECEIVER: dict[str, Any] = {
    "summary": "Change some members of a configuration",
    "description": "A JSON merge patch (RFC 7396): null takes a member back to its default.",
    "tags": ["receivers"],
    "operation_class": operation(
        body("The members to change.", {_MERGE: {"rate": {"limit": 5}, "events": None}}, PATCH),
        [_MATCH],
    ),
    "responses": {
        200: result(StoredReceiver, _DONE, _PUT),
        **problems(400, 408, 409, 412, 413, 415, 422),
    },
}  # fmt: skip
DELETE_RECEIVER: dict[str, Any] = {
    "summary": "Remove a receiver, and discard what waits for it",
    "tags": ["receivers"],
    "operation_class": operation(parameters=[_MATCH]),
    "responses": {
        200: result(RemovedReceiver, "It is gone", {
            "receiver": "acme.billing", "discarded": 12, "certain": True, "recorded": True,
        }),
        **problems(400, 409, 412, 422),
    },
}  # fmt: skip
