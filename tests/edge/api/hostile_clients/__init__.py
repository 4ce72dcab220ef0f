"""The HTTP API against strangers: limits, foreign origins, hostile bytes and slow clients."""
