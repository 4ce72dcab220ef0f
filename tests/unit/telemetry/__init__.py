"""Spans of attempts, and their export."""
