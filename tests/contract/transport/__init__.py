"""Contracts of the transports: one attempt over HTTP, however its receiver behaves."""
