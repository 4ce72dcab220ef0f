"""The journal's bytes, and what is kept of it in memory."""
