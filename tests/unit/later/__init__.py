"""Pure parts of events that wait for their time."""
