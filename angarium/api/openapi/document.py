"""The document at `/openapi.json`: what Litestar derives from the routes, completed by what it cannot know.

The bodies that routes read themselves get their schemas here, path parameters what they are made of.
"""

from typing import Any

import msgspec
from litestar import MediaType, Request, Router
from litestar.openapi.plugins import JsonRenderPlugin

from actors.machine.state import Counters
from actors.status import ReceiverState
from angarium.api.openapi.background.jobs import ReplayRequest
from angarium.api.openapi.batches import BatchItem
from angarium.api.openapi.configuration import REFERENCE, SHOWN, configuration_schemas
from angarium.api.openapi.control import RotationRequest
from angarium.api.openapi.dead_letters import RedriveRequest
from angarium.api.openapi.tokens import TokenRequest
from angarium.operations.ledger_queries.ledger_access import LedgerLag
from angarium.operations.receiver_health.health import ReceiverHealth

Document = dict[str, Any]

DOCUMENT_PATH = "/openapi.json"

BODIES = (BatchItem, RedriveRequest, ReplayRequest, RotationRequest, TokenRequest)
"""The bodies of requests that are decoded into one of our types."""
PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "tenant": {"description": "The tenant.", "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,63}$", "example": "acme"},
    "name": {
        "description": "The receiver's name within its tenant.",
        "pattern": "^[A-Za-z0-9-][A-Za-z0-9_-]{0,63}$", "example": "billing",
    },
    "type": {
        "description": "The event's type.", "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,15}$",
        "maxLength": 200, "example": "order.created",
    },
    "token_id": {"description": "The token's id.", "pattern": "^[a-z2-7]{12}$", "example": "k3f6w2m5qzra"},
}  # fmt: skip
"""The parameters of paths that are texts, and what they are made of."""


class DocumentPlugin(JsonRenderPlugin):
    """Serves the document, made once a process, without the HTML pages that Litestar has below it."""

    def __init__(self) -> None:
        super().__init__(path="/", media_type=MediaType.JSON)
        self._rendered: bytes | None = None

    def receive_router(self, router: Router) -> None:
        router.routes = [route for route in router.routes if route.path == DOCUMENT_PATH]

    def render(self, request: Request[Any, Any, Any], openapi_schema: Document) -> bytes:
        if self._rendered is None:
            self._rendered = msgspec.json.encode(completed(openapi_schema))
        return self._rendered


def completed(document: Document) -> Document:
    """The document with all that is added to it."""
    schemas = document["components"]["schemas"]
    schemas |= configuration_schemas() | _body_schemas() | _state_schemas()
    shown = {"$ref": REFERENCE.format(name=SHOWN)}
    schemas["ReceiverItem"]["properties"]["configuration"] = shown
    receiver = document["paths"]["/v1/tenants/{tenant}/receivers/{name}"]["get"]
    receiver["responses"]["200"]["content"]["application/json"]["schema"] = shown
    state = document["paths"]["/v1/tenants/{tenant}/receivers/{name}/state"]["get"]
    state["responses"]["200"]["content"]["application/json"]["schema"] = {
        "$ref": REFERENCE.format(name=ReceiverState.__name__)
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path" and parameter["name"] in PATH_PARAMETERS:
                    _describe(parameter)
            if not path.startswith("/v1/"):
                operation["security"] = []
    return document


def _body_schemas() -> dict[str, Any]:
    """The schemas of bodies; generators of clients would take a member with a default for a required one."""
    found = msgspec.json.schema_components(BODIES, ref_template=REFERENCE)[1]
    for schema in found.values():
        for member in schema["properties"].values():
            member.pop("default", None)
    return found


def _state_schemas() -> dict[str, Any]:
    """The schemas of a receiver's live state; nodes of other versions may have members more or less."""
    found = msgspec.json.schema_components((ReceiverState, Counters), ref_template=REFERENCE)[1]
    for schema in found.values():
        schema.pop("required", None)
    instant, members = {"type": "string", "format": "date-time"}, found[ReceiverState.__name__]["properties"]
    members["counters"] = {"$ref": REFERENCE.format(name=Counters.__name__)}
    members["remedy"] = {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "description": "The operation after which the receiver continues; null: it continues by itself.",
        "examples": ["POST /v1/tenants/acme/receivers/billing/resume"],
    }
    members["health"] = {
        "anyOf": [{"$ref": REFERENCE.format(name=ReceiverHealth.__name__)}, {"type": "null"}],
        "description": "Its pace, and what limits it; with health=true.",
    }
    members["at"] = instant | {"description": "With `at`: the time of this state."}
    members["recorded_at"] = {
        "anyOf": [instant, {"type": "null"}],
        "description": "With `at`: when the last fact was recorded that this state rests on.",
    }
    members["ledger"] = {"$ref": REFERENCE.format(name=LedgerLag.__name__)}
    return found


def _describe(parameter: dict[str, Any]) -> None:
    """Say what a parameter of a path is made of, where the route says nothing."""
    known = dict(PATH_PARAMETERS[parameter["name"]])
    parameter.setdefault("description", known.pop("description"))
    parameter["example"] = known.pop("example")
    parameter["schema"] |= known
