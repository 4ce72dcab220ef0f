"""The limits on requests of the HTTP API, and a tenant's share of them."""

from contextlib import ExitStack

import pytest

from angarium.api.problems import ProblemRaised
from angarium.api.requests.request_limits import RequestLimits


def test_a_tenant_that_sends_slowly_on_many_connections_keeps_out_no_other() -> None:
    limits = RequestLimits(requests_max=8, bytes_max=800)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(limits.admit("acme"))
        with pytest.raises(ProblemRaised), limits.admit("acme"):
            pass
        request = stack.enter_context(limits.admit("beta"))
        limits.reserve(request, 200)
        with pytest.raises(ProblemRaised):
            limits.reserve(request, 1)
        limits.reserve(stack.enter_context(limits.admit("gamma")), 200)
    with limits.admit("acme") as request:
        limits.reserve(request, 200)
    assert limits.requests == limits.held == 0


def test_the_memory_of_a_request_is_free_again_while_others_of_its_tenant_go_on() -> None:
    limits = RequestLimits(requests_max=8, bytes_max=800)
    with limits.admit("acme"):
        for _ in range(2):
            with limits.admit("acme") as request:
                limits.reserve(request, 200)


def test_all_tenants_together_have_no_more_than_there_is() -> None:
    limits = RequestLimits(requests_max=4, bytes_max=400)
    with ExitStack() as stack:
        for tenant in "abcd":
            stack.enter_context(limits.admit(tenant))
        with pytest.raises(ProblemRaised), limits.admit("e"):
            pass
    with limits.admit("e"):
        assert limits.requests == 1
