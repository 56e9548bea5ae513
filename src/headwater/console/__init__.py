"""The HTTP API that a console in a browser needs besides the rest: a login that ends."""
