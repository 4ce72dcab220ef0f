"""Control: the live state of a receiver, and orders to its owner, answered once they are on record."""

from litestar import get, post
from litestar.params import FromPath

from angarium.api.gate import needs
from angarium.api.live import TheAccess, TheLive
from angarium.api.openapi import control as words
from angarium.api.openapi.control import Paused, Pinged
from angarium.api.problems import answered
from angarium.operations.control.forget import Forgotten
from angarium.operations.control.forget import forget as discard
from angarium.operations.control.pause import pause as hold
from angarium.operations.control.ping import ping as post_ping
from angarium.operations.control.resume import resume as go_on
from angarium.operations.control.skip import Skipped
from angarium.operations.control.skip import skip as give_up
from angarium.operations.control.state import StateDocument
from angarium.operations.control.state import state as ask_state

PATH = "/v1/tenants/{tenant:str}/receivers/{name:str}"


@get(f"{PATH}/state", opt=needs("read"), **words.state)
async def state(tenant: FromPath[str], name: FromPath[str], access: TheAccess) -> StateDocument:
    """Show the live state of a receiver."""
    return answered(await ask_state(access, f"{tenant}.{name}"))


@post(f"{PATH}/pause", status_code=200, opt=needs("manage"), **words.pause)
async def pause(tenant: FromPath[str], name: FromPath[str], live: TheLive) -> Paused:
    """Let the events of a receiver wait."""
    with live.orders.seat(tenant):
        answered(await hold(live.access, f"{tenant}.{name}"))
    return Paused(paused=True)


@post(f"{PATH}/resume", status_code=200, opt=needs("manage"), **words.resume)
async def resume(tenant: FromPath[str], name: FromPath[str], live: TheLive) -> Paused:
    """End a pause, a disablement, backoff and throttling."""
    with live.orders.seat(tenant):
        answered(await go_on(live.access, f"{tenant}.{name}"))
    return Paused(paused=False)


@post(f"{PATH}/ping", status_code=200, opt=needs("manage"), **words.ping)
async def ping(tenant: FromPath[str], name: FromPath[str], live: TheLive) -> Pinged:
    """Post a ping to a receiver."""
    with live.orders.seat(tenant):
        pong = answered(await post_ping(live.access, f"{tenant}.{name}"))
    return Pinged(status=pong.status, error=pong.error, latency_ms=pong.latency_ms)


@post(f"{PATH}/skip", status_code=200, opt=needs("manage"), **words.skip)
async def skip(tenant: FromPath[str], name: FromPath[str], live: TheLive) -> Skipped:
    """Make a dead letter of the event at the head."""
    with live.orders.seat(tenant):
        return answered(await give_up(live.access, f"{tenant}.{name}"))


@post(f"{PATH}/forget", status_code=200, opt=needs("manage"), **words.forget)
async def forget(tenant: FromPath[str], name: FromPath[str], live: TheLive) -> Forgotten:
    """Discard what waits for a receiver, and clear its failures."""
    with live.orders.seat(tenant):
        done = answered(await discard(live.access, f"{tenant}.{name}"))
    assert done is not None, "it is not asked whether to agree"
    return done
