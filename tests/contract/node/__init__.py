"""A node, and the streams when they are full or strange."""
