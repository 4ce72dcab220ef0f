"""The application: every route behind the gate, every error as a problem, and the OpenAPI description."""

from functools import cache

from litestar import Litestar, Router
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme, Server
from litestar.types import Scope
from msgspec.structs import replace

from angarium import __version__
from angarium.access import Access
from angarium.api import problems
from angarium.api.admission.gate import API, CALLER, Gate, guard
from angarium.api.api_state import ApiState
from angarium.api.openapi.document import DOCUMENT_PATH, DocumentPlugin
from angarium.api.publish_fast_path import PublishFastPath
from angarium.api.routes import (
    batches,
    control,
    dead_letters,
    fleet,
    health,
    jobs,
    ledger_queries,
    publishing,
    receivers,
    stored_events,
    tail,
    tokens,
)

GATED = (
    publishing.publish_event, publishing.publish_to_receiver, publishing.publish_untyped_to_receiver,
    batches.publish_batch,
    receivers.list_receivers, receivers.get_receiver, receivers.put_receiver, receivers.patch_receiver,
    receivers.delete_receiver, receivers.rotate_receiver_secret,
    receivers.test_receiver_filter,
    receivers.test_receiver_transform,
    control.get_receiver_state, control.pause_receiver, control.resume_receiver, control.ping_receiver,
    control.skip_event, control.forget_events, control.verify_receiver,
    ledger_queries.list_attempts, ledger_queries.get_history, ledger_queries.get_audit,
    ledger_queries.list_minutes, ledger_queries.get_event, ledger_queries.get_top,
    stored_events.erase_event, stored_events.get_event_erasure,
    dead_letters.list_dead_letters, dead_letters.get_dead_letter, dead_letters.drop_dead_letter,
    dead_letters.redrive_dead_letters,
    tail.tail_attempts, jobs.replay_events, jobs.list_jobs, jobs.get_job, jobs.stop_job,
    stored_events.list_waiting, stored_events.cancel_waiting,
    fleet.list_nodes, fleet.list_shards, fleet.list_alerts,
    tokens.list_tokens, tokens.create_token, tokens.revoke_token,
    tokens.create_portal_link,
)  # fmt: skip
"""The routes that need a token; each names its scope with `needs`."""
OPEN = (health.healthz, health.readyz)


def application(api: ApiState) -> PublishFastPath:
    """The application over the state of this process."""
    return PublishFastPath(api, Gate(api.tokens, api.token_uses, lambda: api.is_ready), routes())


@cache
def routes() -> Litestar:
    """The routes, which take 0.1 s to build: once, since each request brings the state that it is for."""
    return Litestar(
        [Router("/", route_handlers=GATED, guards=[guard]), *OPEN],
        dependencies={
            "api": Provide(_api_of, sync_to_thread=False),
            "access": Provide(_access_of, sync_to_thread=False),
        },
        exception_handlers=problems.HANDLERS,
        openapi_config=description(),
        request_max_body_size=None,
        logging_config=None,
        debug=False,
    )


def _api_of(scope: Scope) -> ApiState:
    api: ApiState = scope["state"][API]
    return api


def _access_of(scope: Scope) -> Access:
    """Access in the name of the request's token."""
    return replace(_api_of(scope).access, by=f"token {scope['state'][CALLER].id}")


def description() -> OpenAPIConfig:
    """The general parts of `/openapi.json`, which is served without a page to browse it."""
    return OpenAPIConfig(
        title="Angarium",
        version=__version__,
        summary="Webhooks on NATS JetStream: in order, at each receiver's rate, across every crash.",
        path=DOCUMENT_PATH,
        render_plugins=[DocumentPlugin()],
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        servers=[Server(url="/")],
        operation_id_creator=_operation_id,
    )


def _operation_id(handler: HTTPRouteHandler, *_: object) -> str:
    """The name of a route's function as generated clients call it: getReceiver."""
    first, *others = handler.handler_name.split("_")
    return first + "".join(map(str.capitalize, others))
