"""The log lines of OpenTelemetry and its HTTP client: without secrets, and not one for each batch.

They quote what the `OTEL_*` variables contain: a header that cannot be read, the endpoint with its password.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote, urlsplit

from angarium.logs import HIDDEN

LOG_EVERY_S = 60.0
TEXT_MAX = 500
_SECRET_MIN = 4
"""Characters of what is hidden: fewer are no secret, and occur in any text."""
_LOGGERS = ("opentelemetry", "urllib3")
_SEPARATORS = str.maketrans(",;=", "   ")


class _LimitedLines(logging.Handler):
    """Passes a line on to the root logger, unless its like was logged in the last minute."""

    def __init__(self) -> None:
        super().__init__()
        self._secrets: list[str] = []
        self._logged_at: dict[tuple[str, str], float] = {}

    def hide(self, secrets: Iterable[str]) -> None:
        """Hide these as well, the longest first: one may be a part of another."""
        self._secrets = sorted({*self._secrets, *secrets}, key=len, reverse=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Log the text of a record, with that of its exception in place of a traceback."""
        kind, now = (record.name, str(record.msg)), time.monotonic()
        if now - self._logged_at.get(kind, now - LOG_EVERY_S) < LOG_EVERY_S:
            return
        # A text may have numbers in it: what is over a minute old is dropped, so that they do not add up.
        self._logged_at = {each: at for each, at in self._logged_at.items() if now - at < LOG_EVERY_S}
        self._logged_at[kind] = now
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" {record.exc_info[1]!r}"
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        shown = logging.makeLogRecord(record.__dict__)
        shown.msg, shown.args, shown.exc_info, shown.exc_text = text[:TEXT_MAX], (), None, None
        logging.getLogger().handle(shown)


_limited = _LimitedLines()


def limit_otel_log(environ: Mapping[str, str]) -> None:
    """Limit these lines from now on, and hide in them what may be secret in these variables."""
    _limited.hide(each for each in _secrets(environ) if len(each) >= _SECRET_MIN)
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [_limited], False


def _secrets(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        if name.startswith("OTEL_") and name.endswith("HEADERS"):
            for form in (value, unquote(value)):
                yield from form.translate(_SEPARATORS).split()
        elif name.startswith("OTEL_") and name.endswith("ENDPOINT"):
            parts = urlsplit(value if "://" in value else f"//{value}")
            yield from (parts.netloc.rpartition("@")[0], parts.password or "", parts.path, parts.query)
