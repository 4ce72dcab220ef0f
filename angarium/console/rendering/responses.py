"""Responses of the console: pages from templates, with headers that let a browser load nothing else.

A template gets its values, and what every page has: who has signed in, and where it is. No page is stored by
a cache, shown in a frame, or loads anything from another host; scripts and styles come from our files only.
"""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import Response
from litestar.datastructures import Cookie
from markupsafe import Markup

from actors.times_as_text import instant_text
from angarium import __version__, quantities
from angarium.console.paths import CONSOLE_PATH, REFRESH_HEADER, ConsoleRequest, came_by_tls, cookie_name
from angarium.console.rendering import escaped_text, labels, rates
from angarium.console.sessions import ConsoleSession

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
NOT_STORED = {"cache-control": "no-store"}
SAVED = {"content-disposition": 'attachment; filename="body.bin"'}
HTML = "text/html"
FILE_TYPES = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "portal.js": "text/javascript",
}
"""The files that a page loads."""


def page(
    request: ConsoleRequest,
    template: str,
    session: ConsoleSession | None,
    *,
    status: int = 200,
    cookies: tuple[Cookie, ...] = (),
    headers: dict[str, str] | None = None,
    **values: Any,
) -> Response[bytes]:
    """A page; what was noted for the session is shown once, and not to a page that refreshes itself."""
    notices: list[str] = []
    if session is not None and REFRESH_HEADER not in request.headers:
        notices, session.notices = session.notices, []
    usual = {"live": "", "refresh_s": 0, "session": session, "notices": notices, "here": request.url.path}
    text = _environment().get_template(template).render(usual | values)
    return Response(
        text.encode(), status_code=status, media_type=HTML, cookies=list(cookies),
        headers=SECURITY_HEADERS | NOT_STORED | (headers or {}),
    )  # fmt: skip


def saved(body: bytes) -> Response[bytes]:
    """An answer that browsers store as a file, and never show."""
    headers = SECURITY_HEADERS | NOT_STORED | SAVED
    return Response(body, media_type="application/octet-stream", headers=headers)


def redirect(path: str, *cookies: Cookie) -> Response[bytes]:
    """An answer that leads to another page, after a form too."""
    headers = SECURITY_HEADERS | NOT_STORED | {"location": path}
    return Response(b"", status_code=303, headers=headers, cookies=list(cookies), media_type=HTML)


def cookie(request: ConsoleRequest, name: str, value: str, lasts_s: float) -> Cookie:
    """A cookie that scripts cannot read, and other sites cannot have sent.

    It needs TLS if the browser came by TLS, and then belongs to the whole host, as its name demands.
    """
    by_tls = came_by_tls(request)
    return Cookie(
        cookie_name(request, name), path="/" if by_tls else CONSOLE_PATH, value=value, max_age=int(lasts_s),
        httponly=True, samesite="strict", secure=by_tls,
    )  # fmt: skip


@cache
def file(name: str) -> tuple[bytes, str]:
    """A file that a page loads, and its digest, which is a part of its address."""
    content = (files("angarium.console") / "files" / name).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:16]


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("angarium.console", "templates"),
        autoescape=True, undefined=StrictUndefined, finalize=_finalized, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    # The text of a field is sent back: it is neither cut nor written in another way.
    made.globals |= {
        "version": __version__,
        "file_path": lambda name: f"{CONSOLE_PATH}/files/{file(name)[1]}/{name}",
        "phase_words": labels.phase_words,
        "phase_tone": labels.phase_tone,
        "limit_words": labels.limit_words,
        "until_empty": labels.until_empty,
        "instant": instant_text,
        "reason": labels.reason,
        "rates_in_force": rates.rates_in_force,
        "learnt_rate": rates.learnt_rate,
        "visible_lines": lambda text: Markup.escape(escaped_text.visible(text, keeping="\n\t")),
    }
    made.filters |= {
        "faithful": Markup.escape,
        "span": labels.span,
        "number": labels.number,
        "size": quantities.bytes_text,
        "took": quantities.milliseconds_text,
        "with_times": escaped_text.with_times,
    }
    return made


def _finalized(value: Any) -> Any:
    """Make each value that a template shows harmless; markup comes from our own templates only."""
    if value is None:
        return "–"
    if isinstance(value, str) and not isinstance(value, Markup):
        return escaped_text.one_value(value)
    return value
