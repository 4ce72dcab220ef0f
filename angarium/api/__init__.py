"""The HTTP API: a thin layer over the operations, with Litestar on uvicorn.

Read `app` first, which puts it together, then `admission.gate` (who may do what), `problems` (the form of
errors) and one of the `routes`. A route does not repeat checks of the gate or the operation; each subject
has one file.

- `admission`: tokens of requests, and limits on what they hold and publish together.
- `requests`: headers, bodies and conditions, read within bounds.
- `routes`: the routes, one file for each subject.
- `queries`: times and pages of queries, and how the ledger is asked.
- `background`: jobs, and the reader of the journal for open tails.
- `openapi`: the texts of `/openapi.json`.
"""
