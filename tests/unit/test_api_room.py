"""The room for requests of the HTTP API: what a tenant may take of it."""

from contextlib import ExitStack

import pytest

from angarium.api.bodies import Room
from angarium.api.problems import Refusal


def test_a_tenant_that_sends_slowly_on_many_connections_keeps_out_no_other() -> None:
    room = Room(requests_max=8, bytes_max=800)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(room.seat("acme"))
        with pytest.raises(Refusal), room.seat("acme"):
            pass
        seat = stack.enter_context(room.seat("beta"))
        room.hold(seat, 200)
        with pytest.raises(Refusal):
            room.hold(seat, 1)
        room.hold(stack.enter_context(room.seat("gamma")), 200)
    with room.seat("acme") as seat:
        room.hold(seat, 200)
    assert room.requests == room.held == 0


def test_all_tenants_together_have_no_more_than_there_is() -> None:
    room = Room(requests_max=4, bytes_max=400)
    with ExitStack() as stack:
        for tenant in "abcd":
            stack.enter_context(room.seat(tenant))
        with pytest.raises(Refusal), room.seat("e"):
            pass
    with room.seat("e"):
        assert room.requests == 1
