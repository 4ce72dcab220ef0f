"""The protocol of NATS, and inboxes."""
