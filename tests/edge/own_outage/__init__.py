"""The outage of a node itself, in a network of the test's own that is taken away."""
