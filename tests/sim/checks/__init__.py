"""The checks of a run: each promise, judged by what the server stored and what receivers got."""
