"""One exchange with a receiver: the request, our HTTP/1.1, and the answer or the failure, as values.

Read `transport` first: the seam that every client implements.
"""
