"""The health of receivers: phase, backlog, pace, and what limits it. Read `listing` first, then `pace`."""
