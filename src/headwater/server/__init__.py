"""The server: configuration, users, start and stop, the command line. The only package that connects the others."""
