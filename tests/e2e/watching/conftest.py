"""A client for the pages of nodes."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.plain_http import plain_client


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with plain_client(trust_env=False, timeout=60) as client:
        yield client
