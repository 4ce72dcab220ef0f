"""Logs: one line for each event, with its fields, and no secret from any source."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from actors.times_as_text import instant_text
from angarium import logs

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, raises = logging.getLogger(), logging.raiseExceptions
    level, handlers = root.level, root.handlers[:]
    levels = {name: logging.getLogger(name).level for name in ("actors", "streams", "angarium")}
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)
    for name, each in levels.items():
        logging.getLogger(name).setLevel(each)


def _stream(form: Literal["text", "json"], level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(form, level, stream)
    return stream


def test_json_has_the_occurrence_and_its_fields() -> None:
    stream = _stream("json")
    logging.getLogger("angarium.node.node").info("shard.claimed", extra={"shard": 3, "epoch": 17})
    line = json.loads(stream.getvalue())
    assert line.pop("at").endswith("Z")
    assert line == {"level": "info", "event": "shard.claimed", "shard": 3, "epoch": 17}


def test_text_is_one_line_with_fields_that_grep_finds() -> None:
    stream = _stream("text")
    logging.getLogger("streams.journal.journal").warning(
        "shard.fenced", extra={"shard": 3, "why": "a newer epoch"}
    )
    _, line = stream.getvalue().split(" ", 1)
    assert line == 'warning shard.fenced shard=3 why="a newer epoch"\n'


@pytest.mark.parametrize(
    ("form", "said"), [("json", '"event": "nats.client", "message": "gone", "node": "n-1"}'),
                       ("text", "nats.client gone node=n-1")],
)  # fmt: skip
def test_each_line_of_a_worker_has_its_name(form: Literal["text", "json"], said: str) -> None:
    stream = io.StringIO()
    logs.configure(form, "info", stream, node="n-1")
    logging.getLogger("nats.client").warning("gone")
    logging.getLogger("angarium.node.node").info("shard.claimed", extra={"shard": 3})
    lines = stream.getvalue().splitlines()
    assert lines[0].endswith(said)
    assert "n-1" in lines[1]


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_is_one_line(form: Literal["text", "json"]) -> None:
    stream = _stream(form)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("angarium.node.node").exception("node.failed")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError" in stream.getvalue()


def test_text_of_libraries_is_one_line_under_their_name() -> None:
    stream = _stream("json")
    logging.getLogger("nats.aio.client").error("lost\nit")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["message"]) == ("nats.aio.client", "lost\nit")
    text = _stream("text")
    logging.getLogger("nats.aio.client").error("lost\nit")
    assert text.getvalue().endswith("nats.aio.client lost\\nit\n")


def test_libraries_are_heard_from_warnings_on_and_we_from_the_level_on() -> None:
    stream = _stream("text", "debug")
    logging.getLogger("httpx").info("HTTP Request: POST https://example.com")
    logging.getLogger("actors.runtime.host").debug("actor.parked")
    assert "httpx" not in stream.getvalue()
    assert "actor.parked" in stream.getvalue()
    quiet = _stream("text", "error")
    logging.getLogger("actors.runtime.host").warning("actor.parked")
    assert quiet.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"signed with {SECRET}.", SECRET.removeprefix("whsec_")),
        ("cannot reach nats://joe:hush@nats:4222", "hush"),
        ("password with an at: nats://joe:hu@sh@nats:4222", "sh@"),
        ("POST https://example.com/hook?token=hush failed", "hush"),
        ("POST https://example.com#hush", "hush"),
        ("{'Authorization': 'Bearer hush'}", "hush"),
        ("set-cookie: session=hush", "hush"),
        ("sealed:AAECAwhush==", "hush"),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_in_any_text_are_hidden(form: Literal["text", "json"], text: str, hidden: str) -> None:
    stream = _stream(form)
    log = logging.getLogger("angarium.node.node")
    log.info(text)
    log.info("receiver.refused", extra={"why": text, "nested": {"why": [text]}})
    try:
        raise RuntimeError(text)
    except RuntimeError:
        log.exception("attempt.broken")
    assert hidden not in stream.getvalue()
    if form == "json":
        assert len([json.loads(line) for line in stream.getvalue().splitlines()]) == 3


def test_fields_that_carry_secrets_show_only_that_they_are_there() -> None:
    stream = _stream("json")
    fields = {"headers": {"x-team": "hush"}, "policy": {"secrets": ["hush"], "url": "https://example.com"}}
    logging.getLogger("angarium.node.node").info("receiver.changed", extra=fields)
    line = json.loads(stream.getvalue())
    assert line["headers"] == {"x-team": logs.HIDDEN}
    assert line["policy"] == {"secrets": logs.HIDDEN, "url": "https://example.com"}


def test_an_instant_is_rfc_3339_in_milliseconds() -> None:
    assert instant_text(1767225600.1239) == "2026-01-01T00:00:00.123Z"


OBEYED = "a\x1b]0;b\x07\x7f\x85\x9b2J\u202e\u2028\U000e0001z"


@pytest.mark.parametrize("form", ["text", "json"])
def test_control_characters_are_escaped(form: Literal["text", "json"]) -> None:
    stream = _stream(form)
    log = logging.getLogger("angarium.node.node")
    log.info(OBEYED)
    log.info("receiver.refused", extra={"why": OBEYED, "plain": OBEYED[:1] + OBEYED[6:], "nested": [OBEYED]})
    try:
        raise RuntimeError(OBEYED)
    except RuntimeError:
        log.exception("attempt.broken")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    if form == "json":
        assert json.loads(lines[1])["why"] == OBEYED
    else:
        assert r'why="a\u001b]0;b\u0007\u007f\u0085\u009b2J\u202e\u2028\udb40\udc01z"' in lines[1]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_secret_with_control_characters_in_it_is_hidden_whole(form: Literal["text", "json"]) -> None:
    stream = _stream(form)
    fields = {"why": "nats://joe:hu\x1bsh@nats:4222 https://a.example?t=hu\x9bsh"}
    logging.getLogger("angarium.node.node").info("receiver.refused", extra=fields)
    assert "sh" not in stream.getvalue().replace("refused", "")
