"""The files of `deploy/`: servers and nodes started with them, and schemas of those that run them."""
