"""Batches as they are sent."""
