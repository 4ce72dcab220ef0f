"""Events that wait for their time."""
