"""Pure parts of routing."""
