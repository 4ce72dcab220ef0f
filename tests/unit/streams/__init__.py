"""Pure parts of the streams, and answers to requests."""
