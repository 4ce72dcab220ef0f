"""The pure rules of handshakes."""
