"""The routes, one file for each subject; `angarium.api.app` lists them.

Each is a function over an operation: it takes `ApiState` or `Access`, and `result_of` turns an operation that
was not done into a problem. Read `publishing` first.
"""
