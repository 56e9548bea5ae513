"""The process: sockets, event loop, memory, signals, log lines."""
