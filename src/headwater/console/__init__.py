"""The additional HTTP API for a console in a browser: a login that expires."""
