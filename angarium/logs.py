"""Logs: one structured line for each occurrence, on stderr, without secrets.

All packages log through the standard library, so that none needs to import this module: the message is the
name of the occurrence, `extra` its fields, as in `log.info("shard.claimed", extra={"shard": 3, "epoch":
17})`. Any other message (for example from nats-py) is text, and its logger's name is that of the occurrence.
Events of every single delivery are logged at `debug` at most.

Secrets are kept out in two ways: fields with secrets show nothing, and each text and the finished line are
searched for patterns of secrets, since an error's text may quote anything. Control characters are escaped.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from typing import Any, Literal, TextIO

from actors.times_as_text import instant_text
from angarium.escaping import visible_json

HIDDEN = "…"

_OCCURRENCE = re.compile(r"[a-z_]+(\.[a-z_]+)+\Z")
_PLAIN = re.compile(r"[^\s\"'=\\]+\Z")
_OWN_LOGGERS = ("actors", "streams", "angarium")
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_SECRET_FIELDS = frozenset({
    "authorization", "body", "cookie", "headers", "password", "secret", "secrets", "set-cookie", "token",
})  # fmt: skip
_SCHEME = r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://"
_SECRETS = (
    (re.compile(r"\b(whsec_|whsk_|whs512_|sealed:)[A-Za-z0-9+/=_-]+"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(ang_[a-z0-9]{1,32}_)[A-Za-z0-9_-]+"), rf"\1{HIDDEN}"),
    (re.compile(_SCHEME + r")[^\s/\"'\\]+@"), rf"\1{HIDDEN}@"),
    (re.compile(_SCHEME + r"[^\s\"'?#\\]*[?#])[^\s\"'\\]+"), rf"\1{HIDDEN}"),
    (
        re.compile(r"\b((?:proxy-)?authorization|(?:set-)?cookie)([^\w…]{1,4})[^\"'\\]+", re.I),
        rf"\1\2{HIDDEN}",
    ),
)


def redact(text: str) -> str:
    """The text without signing secrets, passwords in URLs, queries of URLs, and credentials in headers."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def configure(
    form: Literal["text", "json"], level: str, stream: TextIO | None = None, node: str | None = None
) -> None:
    """Send all logs of this process to `stream` (stderr), in one form.

    With `node` each line has the name of the node, since several nodes share that stream.

    Libraries log from `warning` on: httpx and h2 would otherwise log each request, and h2 its headers.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(node) if form == "json" else TextLines(node))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in _OWN_LOGGERS:
        logging.getLogger(name).setLevel(level.upper())
    logging.raiseExceptions = False  # A closed stderr is no reason to print a traceback there.


class _Lines(logging.Formatter):
    """Base of both forms: which members a line has."""

    def __init__(self, node: str | None = None) -> None:
        super().__init__()
        self._fixed = {} if node is None else {"node": node}

    def members(self, record: logging.LogRecord) -> dict[str, Any]:
        message = record.getMessage()
        named = _OCCURRENCE.match(message)
        members = {
            "at": instant_text(record.created),
            "level": record.levelname.lower(),
            "event": message if named else record.name,
            **({} if named else {"message": redact(message)}),
            **self._fixed,
        }
        extra = {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        members |= {key: _shown(key, value) for key, value in extra.items()}
        if record.exc_info and record.exc_info[1] is not None:
            members["error"] = redact(repr(record.exc_info[1]))
            members["traceback"] = redact("".join(traceback.format_exception(record.exc_info[1])))
        return members


class JsonLines(_Lines):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_json(redact(json.dumps(self.members(record), ensure_ascii=False, default=str)))


class TextLines(_Lines):
    """`2026-01-31T12:00:00.000Z info shard.claimed shard=3 epoch=17`, for people and grep."""

    def format(self, record: logging.LogRecord) -> str:
        members = self.members(record)
        head = [members.pop("at"), f"{members.pop('level'):7}", members.pop("event")]
        if (message := members.pop("message", None)) is not None:
            head.append(_escaped(message))
        line = " ".join([*head, *(f"{key}={_value(value)}" for key, value in members.items())])
        return visible_json(redact(line))


def _shown(key: str, value: Any) -> Any:
    """A field's value, without secrets."""
    if key.lower() in _SECRET_FIELDS:
        return dict.fromkeys(value, HIDDEN) if isinstance(value, Mapping) else HIDDEN
    if isinstance(value, Mapping):
        return {inner: _shown(str(inner), each) for inner, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(key, each) for each in value]
    return redact(value) if isinstance(value, str) else value


def _value(value: Any) -> str:
    """A value as written after `key=`: as it is, or as a JSON string if it has blanks or quotes."""
    if isinstance(value, str) and value.isprintable() and _PLAIN.match(value):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _escaped(message: str) -> str:
    """A message in one line."""
    return message.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
