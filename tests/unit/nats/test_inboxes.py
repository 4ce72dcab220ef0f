"""The reply subjects that a node answers."""

import logging

import pytest

from streams.nats.inboxes import Inboxes


@pytest.mark.parametrize(
    "reply", ["_INBOX.x", "_INBOX.jHcZ.3", "_R_.HuAeGI.AY6nzf", "_INBOX_ops.x.1", "_own.in.x"]
)
def test_inboxes_and_what_an_import_puts_in_their_place_are_answered(reply: str) -> None:
    assert Inboxes("_INBOX_ops", "_own.in").includes(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "", "_INBOX", "_INBOXES.x", "_INBOX_ops.x", "_R.x", "_own.x", "angarium.journal.0",
        "_GR_.a.b._INBOX.x",
        "$KV.angarium_receivers.acme.x", "$JS.API.STREAM.PURGE.ANGARIUM_EVENTS", "x._INBOX.y",
        "_INBOX." + "\\xff" * 1000,
    ],
)  # fmt: skip
def test_no_other_subject_is_an_inbox(reply: str) -> None:
    assert not Inboxes("_INBOX", "_own.in").includes(reply)


def test_the_first_that_is_not_answered_is_told(caplog: pytest.LogCaptureFixture) -> None:
    inboxes = Inboxes()
    with caplog.at_level(logging.WARNING):
        for reply in ("", "angarium.journal.0", "angarium.journal.1"):
            inboxes.includes(reply)
    (line,) = caplog.records
    assert (line.getMessage(), vars(line)["reply"]) == ("reply.refused", "angarium.journal.0")
