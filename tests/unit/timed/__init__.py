"""Pure parts of timed events."""
