"""The bench, and the number of calls that a delivery costs."""
