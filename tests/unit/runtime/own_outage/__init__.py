"""The outage of a node itself, seen by its actors."""
