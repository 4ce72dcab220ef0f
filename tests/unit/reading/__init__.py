"""Messages as they are read, and how far."""
