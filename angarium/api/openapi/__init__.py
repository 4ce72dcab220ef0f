"""The texts of `/openapi.json`: what types cannot say, and an example of every answer.

Read `shared_texts` first. Each subject of the routes has its own file, with one constant for each route,
named after the route's function.
"""
