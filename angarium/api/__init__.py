"""The HTTP API: a thin layer over the operations, with Litestar on uvicorn.

Read first: app.py, which puts it together, then gate.py (who may do what), problems.py (the form of errors)
and one of the routes. A route does not repeat checks of the gate or the operation; each subject has one file.
"""
