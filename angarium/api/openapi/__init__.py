"""The words of `/openapi.json`: what types cannot say, and an example of every answer.

Read first: parts.py; each subject of the routes has its own file.
"""
