"""Clients of HTTP servers without TLS, such as those that tests start."""

import ssl
from typing import Any

import httpx

NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts no server. Without it, httpx reads all authorities of the system for each client, in 20 ms."""


def plain_client(**options: Any) -> httpx.AsyncClient:
    """A client for `http://` addresses; the options are those of httpx."""
    return httpx.AsyncClient(verify=NO_AUTHORITIES, **options)
