"""README and docs: their commands work when typed in."""
