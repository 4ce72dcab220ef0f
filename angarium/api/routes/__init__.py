"""The routes, one file a subject; `angarium.api.app` lists them.

Each is a function over an operation: it takes `ApiState` or `Access`, and `answered` makes a problem of what
was not done.
"""
