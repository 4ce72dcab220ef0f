"""Room in the streams: what is purged, what is evicted, and what stays."""
