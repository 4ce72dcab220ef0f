"""The document at `/openapi.json`: Litestar derives it from the routes, and this module completes it.

Bodies that routes read themselves get their schemas here, and path parameters their patterns.
"""

from typing import Any

import msgspec
from litestar import MediaType, Request, Router
from litestar.openapi.plugins import JsonRenderPlugin

from actors.machine.state import Counters
from actors.status import ReceiverState
from angarium.api.openapi.configuration import REFERENCE, SHOWN, configuration_schemas
from angarium.api.openapi.control import RotationRequest
from angarium.api.openapi.dead_letters import RedriveRequest
from angarium.api.openapi.jobs import ReplayRequest
from angarium.api.openapi.publishing import BatchItem
from angarium.api.openapi.receivers import TransformTrialRequest, TrialRequest
from angarium.api.openapi.tokens import PortalLinkRequest, TokenRequest
from angarium.operations.ledger_queries.ledger_access import LedgerLag
from angarium.operations.receiver_list.health import ReceiverHealth

Document = dict[str, Any]

DOCUMENT_PATH = "/openapi.json"

BODIES = (
    BatchItem,
    PortalLinkRequest,
    RedriveRequest,
    ReplayRequest,
    RotationRequest,
    TokenRequest,
    TransformTrialRequest,
    TrialRequest,
)
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
"""The text parameters of paths, and their patterns."""


class DocumentPlugin(JsonRenderPlugin):
    """Serves the document, made once a process, without Litestar's HTML pages."""

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
    """The document, completed."""
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
    """The schemas of bodies, without defaults: generators of clients treat a member with one as required."""
    found = msgspec.json.schema_components(BODIES, ref_template=REFERENCE)[1]
    for schema in found.values():
        for member in schema["properties"].values():
            member.pop("default", None)
    return found


def _state_schemas() -> dict[str, Any]:
    """The schemas of a receiver's live state; other versions may have more or fewer members."""
    found = msgspec.json.schema_components((ReceiverState, Counters), ref_template=REFERENCE)[1]
    for schema in found.values():
        schema.pop("required", None)
    instant, members = {"type": "string", "format": "date-time"}, found[ReceiverState.__name__]["properties"]
    members["counters"] = {"$ref": REFERENCE.format(name=Counters.__name__)}
    members["remedy"] = {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "description": (
            "The request after which the receiver continues; null: it continues by itself, or once its node "
            "has the key that `why` names."
        ),
        "examples": ["POST /v1/tenants/acme/receivers/billing/resume"],
    }
    members["health"] = {
        "anyOf": [{"$ref": REFERENCE.format(name=ReceiverHealth.__name__)}, {"type": "null"}],
        "description": "With `health=true`: its throughput, and what limits it.",
    }
    members["at"] = instant | {"description": "With `at`: the time of this state."}
    members["recorded_at"] = {
        "anyOf": [instant, {"type": "null"}],
        "description": "With `at`: the time at which the last fact before it was recorded.",
    }
    members["ledger"] = {"$ref": REFERENCE.format(name=LedgerLag.__name__)}
    return found


def _describe(parameter: dict[str, Any]) -> None:
    """Describe a parameter of a path, unless the route does."""
    known = dict(PATH_PARAMETERS[parameter["name"]])
    parameter.setdefault("description", known.pop("description"))
    parameter["example"] = known.pop("example")
    parameter["schema"] |= known
