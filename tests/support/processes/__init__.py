"""Processes that tests start: commands, nodes, the nats CLI, the ledger, and how they are forked."""
