"""The console: pages in a browser on what the operations know and do, served together with the HTTP API.

Read `app` first, which puts it together, then `admission` (who sees what) and one of the `pages`. It has no
data of its own, and no way to NATS but the operations. From `angarium.api` it takes the state of the process,
its limits, its problems and its queries, and nothing else.

- `rendering`: templates, and texts from outside in a harmless form.
- `pages`: the pages, one file for each subject.

`console/templates` and `console/files` are what browsers get.
"""
