"""The server: configuration, users, start and stop, the command line. The only room that brings the others together."""
