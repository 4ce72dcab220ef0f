"""Servers, clients and terminals at the edges of the product."""
