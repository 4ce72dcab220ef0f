"""Resets logging after commands that run within the process of the tests."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    root, raises = logging.getLogger(), logging.raiseExceptions
    handlers = root.handlers[:]
    levels = {name: logging.getLogger(name).level for name in ("", "actors", "streams", "angarium")}
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raises
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
