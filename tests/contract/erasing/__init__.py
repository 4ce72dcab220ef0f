"""The searches for an event that has to be erased."""
