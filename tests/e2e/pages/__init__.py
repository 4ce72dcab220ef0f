"""README and docs: what they show works when it is typed in."""
