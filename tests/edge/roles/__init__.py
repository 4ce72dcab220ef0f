"""The users and files of `deploy/`: what each role may do."""
