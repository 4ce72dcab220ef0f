"""Angarium meets the world: commands, nodes, and the edge to the receivers.

Read `node` first (a member of the fleet), then `delivery` (the HTTP requests) and `operations` (what the
commands in `cli` do). `api` serves the operations over HTTP, `console` shows them in a browser, `ledger`
keeps the history, `telemetry` exports traces and metrics, `workers` runs several nodes, and `development` has
`dev` and `listen`. `cli`, `demo`, `bench` and `terminal` are what a user sees. `settings` has the settings of
an installation and of a process.
"""

__version__ = "0.1.0"
