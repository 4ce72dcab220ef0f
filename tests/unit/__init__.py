"""Pure tests, in folders like the rooms that they test."""
