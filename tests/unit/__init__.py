"""Pure tests, in folders named like those that they test."""
