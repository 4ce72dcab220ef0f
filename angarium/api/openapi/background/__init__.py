"""Descriptions of what continues after a request: live attempts, replays and jobs."""
