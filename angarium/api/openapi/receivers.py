"""The configurations of receivers: what the operations on them answer, and their description."""

from typing import Annotated, Any

from litestar.openapi.datastructures import ResponseSpec
from msgspec import Meta, Struct

from actors.configuration.transform import Transform
from angarium.api.openapi.configuration import CONFIGURATION, PATCH
from angarium.api.openapi.shared_texts import body, header_parameter, operation, problems, result
from angarium.operations.configurations.changes import MemberChange
from angarium.operations.configurations.trials import transform_trial
from angarium.operations.configurations.trials.filter_trial import EVENTS_DEFAULT, EVENTS_MAX, FilterTrial
from angarium.operations.receiver_list.health import ReceiverHealth


class ReceiverItem(Struct, frozen=True, kw_only=True):
    """A receiver in a list; `problems` say why its configuration is not in force.

    `health` is null unless it was requested.
    """

    receiver: str
    name: str
    revision: int
    configuration: dict[str, Any]
    problems: list[str]
    health: ReceiverHealth | None


class StoredReceiver(Struct, frozen=True, kw_only=True):
    """The stored configuration; `changes` lists what differs from the one that it replaced.

    `secret` is the new secret, if one was made; `secrets` is the number of secrets that sign now, and
    `public_keys` are those of the secrets that have one. `notes` say why nodes may refuse a new URL.
    """

    receiver: str
    revision: int
    replaced: bool
    secret: str | None
    secrets: int
    public_keys: list[str]
    changes: list[MemberChange]
    notes: list[str]


class ReceiverPage(Struct, frozen=True, kw_only=True):
    """Receivers in alphabetical order; without a `next_cursor` this is the last page."""

    receivers: list[ReceiverItem]
    next_cursor: str | None


class RemovedReceiver(Struct, frozen=True, kw_only=True):
    """The removed receiver.

    `discarded` is the number of its events that waited, or the highest possible number if it is not
    `certain`; `recorded`: the owner has confirmed that all of them are discarded.
    """

    receiver: str
    discarded: int
    certain: bool
    recorded: bool


class TrialRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Another filter than the receiver's own, and the number of events that it is tried on."""

    filter: str | None = None
    last: Annotated[int, Meta(ge=1, le=EVENTS_MAX)] = EVENTS_DEFAULT


class TransformTrialRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Another transform than the receiver's own, and the number of events that it is tried on."""

    transform: Transform | None = None
    last: Annotated[int, Meta(ge=1, le=transform_trial.EVENTS_MAX)] = transform_trial.EVENTS_DEFAULT


HEALTH_EXAMPLE = {
    "phase": "active", "waiting": 420, "oldest_at": "2026-11-22T20:00:00.000Z", "failing_since": None,
    "disabled": None, "in_per_s": 3.2, "out_per_s": 5.0, "empty_in_s": 233.3, "limited_by": "rate",
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
    "public_keys": [],
    "changes": [{"member": "rate", "old": "10/second", "new": "5/second", "lost": False}], "notes": [],
}  # fmt: skip
_CREATED = _PUT | {
    "replaced": False, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "changes": [], "revision": 1,
}  # fmt: skip
_MERGE = "application/merge-patch+json"
_TAG = '"7"'
_MATCH = header_parameter("If-Match", "The ETag of the configuration to change, or *.", _TAG)
_NONE_MATCH = header_parameter(
    "If-None-Match", "* stores the configuration only if there is no such receiver.", "*"
)
_KNOWN = header_parameter(
    "If-None-Match", "The ETag that the client has; the answer is 304 if it is still current.", _TAG
)
_IN_FORCE_SOON = "The configuration is stored; nodes use it within a second"

GET_RECEIVER: dict[str, Any] = {
    "summary": "Show the configuration of a receiver, with … in place of secrets",
    "tags": ["receivers"],
    "operation_class": operation(parameters=[_KNOWN]),
    "responses": {
        200: result(dict[str, Any], "The configuration as it was put; its revision is the ETag", _STORED),
        304: ResponseSpec(
            None, description="The client has the current configuration", generate_examples=False
        ),
        **problems(400, 409, 422),
    },
}
LIST_RECEIVERS: dict[str, Any] = {
    "summary": "List the receivers of a tenant",
    "tags": ["receivers"],
    "responses": {
        200: result(ReceiverPage, "A page of receivers", {
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
    "description": "Missing members take their defaults, but secrets stay as they are. The value … keeps the "
    "stored one. A new receiver without secrets gets one, which only this answer shows; "
    '"secrets": [] leaves its requests unsigned. A change that would lose stored members needs If-Match.',
    "tags": ["receivers"],
    "operation_class": operation(
        body("The configuration.", {"application/json": {"url": _URL, "rate": "10/second"}}, CONFIGURATION),
        [_MATCH, _NONE_MATCH],
    ),
    "responses": {
        200: result(StoredReceiver, _IN_FORCE_SOON, _PUT),
        201: result(StoredReceiver, "The receiver is new. " + _IN_FORCE_SOON, _CREATED),
        **problems(400, 408, 409, 412, 413, 415, 422, 428, 429),
    },
}  # fmt: skip
PATCH_RECEIVER: dict[str, Any] = {
    "summary": "Change some members of a configuration",
    "description": "A JSON merge patch (RFC 7396): null resets a member to its default. A rate as text, "
    "such as 5/second, leaves a stored burst as it is.",
    "tags": ["receivers"],
    "operation_class": operation(
        body("The members to change.", {_MERGE: {"rate": {"limit": 5}, "events": None}}, PATCH),
        [_MATCH],
    ),
    "responses": {
        200: result(StoredReceiver, _IN_FORCE_SOON, _PUT),
        **problems(400, 408, 409, 412, 413, 415, 422, 429),
    },
}  # fmt: skip
DELETE_RECEIVER: dict[str, Any] = {
    "summary": "Remove a receiver, and discard its waiting events",
    "tags": ["receivers"],
    "operation_class": operation(parameters=[_MATCH]),
    "responses": {
        200: result(RemovedReceiver, "The removed receiver", {
            "receiver": "acme.billing", "discarded": 12, "certain": True, "recorded": True,
        }),
        **problems(400, 409, 412, 422, 429),
    },
}  # fmt: skip
TEST_FILTER: dict[str, Any] = {
    "summary": "Show which of the last events the filter of a receiver lets through",
    "description": "Nothing is sent. The events are the last that it subscribes to, the oldest first.",
    "tags": ["receivers"],
    "operation_class": operation(
        body(
            "Another filter than the receiver's own, and the number of events (by default 100).",
            {"application/json": {"filter": "total > `100`", "last": 20}}, "TrialRequest", required=False,
        )
    ),
    "responses": {
        200: result(FilterTrial, "What the filter says about each event", {
            "receiver": "acme.billing", "filter": "total > `100`", "region": ["eu"], "sent": 1, "not_sent": 1,
            "failed": 0, "cut": False, "events": [
                {"position": 17, "id": "order-7", "type": "order.created",
                 "stored_at": "2026-11-22T20:00:00.000Z", "result": "sent", "why": ""},
                {"position": 18, "id": "order-8", "type": "order.created",
                 "stored_at": "2026-11-22T20:00:01.000Z", "result": "filter", "why": ""},
            ],
        }),
        **problems(400, 408, 413, 415, 422, 429),
    },
}  # fmt: skip
TEST_TRANSFORM: dict[str, Any] = {
    "summary": "Show how the last events would look to a receiver",
    "description": "Nothing is sent. The events are the last that it subscribes to, the oldest first.",
    "tags": ["receivers"],
    "operation_class": operation(
        body(
            "Another transform than the receiver's own, and the number of events (by default 10).",
            {"application/json": {"transform": {"drop": ["/user/email"]}, "last": 20}},
            "TransformTrialRequest", required=False,
        )
    ),
    "responses": {
        200: result(transform_trial.TransformTrial, "The bodies as the receiver would get them", {
            "receiver": "acme.billing",
            "transform": {"keep": None, "drop": ["/user/email"], "pseudonymize": []},
            "key": "own", "cut": False, "events": [
                {"position": 17, "id": "order-7", "type": "order.created",
                 "stored_at": "2026-11-22T20:00:00.000Z", "body": '{"user":{"id":7}}', "why": ""},
                {"position": 18, "id": "order-8", "type": "order.created",
                 "stored_at": "2026-11-22T20:00:01.000Z", "body": None,
                 "why": "it is not JSON in UTF-8"},
            ],
        }),
        **problems(400, 408, 413, 415, 422, 429),
    },
}  # fmt: skip
