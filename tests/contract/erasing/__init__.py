"""Erasures: what the eraser and the owners delete, and what stays."""
