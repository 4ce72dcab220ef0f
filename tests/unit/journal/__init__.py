"""The journal's bytes, and how it is read."""
