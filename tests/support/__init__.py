"""Code that several test folders share. Its asserts are rewritten, so that a failure shows the values."""

import pytest

SHARED = (
    "fleet.fleet", "fleet.load", "processes.commands", "processes.ledger", "processes.nats_cli",
    "processes.nodes",
)  # fmt: skip
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in SHARED))
