"""Contracts of the transports: one attempt over HTTP, for every behaviour of a receiver."""
