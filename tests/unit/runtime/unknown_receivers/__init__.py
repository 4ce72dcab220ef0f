"""Events for receivers that do not exist."""
