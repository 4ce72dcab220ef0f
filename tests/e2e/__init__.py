"""Whole processes: nats-server, nodes, commands. What tests share asserts too, and shall say what it saw."""

import pytest

SHARED = ("commands", "fleet", "load", "nats_cli", "nodes")
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in SHARED))
