"""HTTP clients and servers of `angarium bench api`, each in a process of its own.

Read `client` first: the requests of which the bench's figures are made.
"""
