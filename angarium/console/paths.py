"""Paths of the console, the header of a refresh, the type of a request, and the names of its cookies."""

from typing import Any

from litestar import Request

CONSOLE_PATH = "/console"
SIGN_IN_PATH = f"{CONSOLE_PATH}/sign-in"
REFRESH_HEADER = "x-console-refresh"
"""The header of a request with which a page refreshes itself."""

METHOD = "angarium_method"
"""The member of a request's state that has its method: HEAD is routed as GET."""

ConsoleRequest = Request[Any, Any, Any]

HOST_PREFIX = "__Host-"
"""Beginning of the name of a cookie that a browser takes by TLS only, and from this very host: neither a
sibling of it nor anyone in between can give a browser a session of their own."""


def came_by_tls(request: ConsoleRequest) -> bool:
    """True if the browser came by TLS, as the proxy in front of us says."""
    scheme = request.headers.get("x-forwarded-proto", request.url.scheme).partition(",")[0]
    return scheme.strip().lower() == "https"


def cookie_name(request: ConsoleRequest, name: str) -> str:
    """The name under which the browser of a request keeps a cookie: `dev` has no TLS."""
    return f"{HOST_PREFIX}{name}" if came_by_tls(request) else name


def kept_cookie(request: ConsoleRequest, name: str) -> str:
    """The value of a cookie that the browser kept; empty if it has none."""
    return request.cookies.get(cookie_name(request, name), "")
