"""Events with a time, over HTTP."""
