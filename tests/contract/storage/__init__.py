"""Room in the streams: what is purged, what is counted, and what stays."""
