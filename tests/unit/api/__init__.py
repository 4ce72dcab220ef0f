"""Parts of the HTTP API that need no server."""
