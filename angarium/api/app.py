"""The application: every route below its gate, every error as a problem, and the description of it all."""

from litestar import Litestar, MediaType, Router
from litestar.config.cors import CORSConfig
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme, Server

from angarium import __version__
from angarium.api import problems
from angarium.api.front import Front
from angarium.api.gate import Gate, guard
from angarium.api.live import Live
from angarium.api.routes import batches, control, dead_letters, fleet, publishing, readiness, receivers
from angarium.connecting import Access

GATED = (
    publishing.fan_out, publishing.direct, publishing.direct_untyped, batches.batch,
    receivers.listed, receivers.shown, receivers.stored, receivers.changed, receivers.removed,
    receivers.rotated,
    control.state, control.pause, control.resume, control.ping, control.skip, control.forget,
    dead_letters.listed, dead_letters.shown, dead_letters.dropped, dead_letters.redriven,
    fleet.nodes, fleet.shards, fleet.tokens, fleet.make_token, fleet.revoke_token,
)  # fmt: skip
"""The routes that need a token; each says by `needs` which scope."""
OPEN = (readiness.healthz, readiness.readyz)


def application(live: Live) -> Front:
    """The application over the live state of this process."""
    gate = Gate(live)
    return Front(live, gate, _litestar(live, gate))


def _litestar(live: Live, gate: Gate) -> Litestar:

    def the_live() -> Live:
        return live

    def the_access() -> Access:
        return live.access

    origins = list(live.access.settings.cors_origins)
    return Litestar(
        [Router("/", route_handlers=GATED, guards=[guard(gate)]), *OPEN],
        dependencies={
            "live": Provide(the_live, sync_to_thread=False),
            "access": Provide(the_access, sync_to_thread=False),
        },
        exception_handlers=problems.HANDLERS,
        openapi_config=description(),
        cors_config=CORSConfig(allow_origins=origins) if origins else None,
        request_max_body_size=None,
        logging_config=None,
        debug=False,
    )


def description() -> OpenAPIConfig:
    """The general parts of `/openapi.json`, which is served without a page to browse it."""
    return OpenAPIConfig(
        title="Angarium",
        version=__version__,
        summary="Webhooks on NATS JetStream: in order, at each receiver's rate, across every crash.",
        path="/openapi.json",
        render_plugins=[JsonRenderPlugin(path="/", media_type=MediaType.JSON)],
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        servers=[Server(url="/")],
    )
