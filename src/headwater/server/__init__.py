"""The server: configuration, users, start and stop, the command line. The only room that connects the others."""
