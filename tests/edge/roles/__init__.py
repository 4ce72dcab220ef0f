"""The users of `deploy/nats/permissions.conf`: what each role may do."""
