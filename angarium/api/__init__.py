"""The HTTP API: a thin way to the operations, over Litestar on uvicorn.

Read first: app.py, which puts it together, then gate.py (who may), problems.py (what an error looks like) and
one of the routes. A route checks nothing that the gate or the operation checks; it is one file a subject.
"""
