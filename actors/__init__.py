"""Angarium decides: pure state machines of receivers, and the shell that performs what they ask for."""
