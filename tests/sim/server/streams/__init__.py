"""Streams of the server in memory: messages, replicas and atomic batches."""
