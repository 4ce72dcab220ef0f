"""Angarium meets the world: commands, nodes, and the edge to the receivers.

Read `node` first (a member of the fleet), then `delivery` (the HTTP requests) and `operations` (what the
commands in `cli` do). `settings` has the settings of an installation and of a process.
"""

__version__ = "0.1.0"
