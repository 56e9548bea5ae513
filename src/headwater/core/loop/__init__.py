"""Resources of one event loop that its peers share: access to a log, time, places.

Each module explains its theory in its docstring. Nothing here depends on a protocol or a socket.
"""
