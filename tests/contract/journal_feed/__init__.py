"""The journal as other processes read it."""
