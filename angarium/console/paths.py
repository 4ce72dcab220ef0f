"""Paths of the console, the header of a refresh, and the type of a request."""

from typing import Any

from litestar import Request

CONSOLE_PATH = "/console"
SIGN_IN_PATH = f"{CONSOLE_PATH}/sign-in"
REFRESH_HEADER = "x-console-refresh"
"""The header of a request with which a page refreshes itself."""

ConsoleRequest = Request[Any, Any, Any]
