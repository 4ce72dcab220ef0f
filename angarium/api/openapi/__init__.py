"""The texts of `/openapi.json`: what types cannot say, and an example of every answer.

Read `shared_texts` first. Each subject of the routes has its own file, with a constant for each route,
which is called like the route's function.
"""
