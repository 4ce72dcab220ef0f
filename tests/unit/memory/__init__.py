"""The memory of one actor."""
