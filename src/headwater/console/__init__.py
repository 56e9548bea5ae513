"""What a console in a browser needs besides the rest of the HTTP API: a login that ends."""
