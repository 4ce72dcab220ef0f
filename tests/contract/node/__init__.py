"""A node: control requests, garbage collection, and streams that are recreated or strange."""
