"""The repair of a lost tail."""
