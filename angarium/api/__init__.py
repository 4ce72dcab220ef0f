"""The HTTP API: a thin layer over the operations, with Litestar on uvicorn.

Read `app` first, which puts it together, then `admission.gate` (who may do what), `problems` (the form of
errors) and one of the `routes`. A route does not repeat checks of the gate or the operation; each subject
has one file.
"""
