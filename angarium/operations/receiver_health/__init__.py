"""Says how receivers do: phase, backlog, pace, and what limits it. `listing` is read first, then `pace`."""
