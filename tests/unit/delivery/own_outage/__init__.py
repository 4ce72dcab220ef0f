"""The outage of a node itself: evidence, verdict, probes."""
