"""The edge to the receivers: signing, the guard, and the transports."""
