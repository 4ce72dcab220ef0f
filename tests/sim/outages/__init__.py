"""Nodes that lose their network, and receivers that only seem to show that."""
