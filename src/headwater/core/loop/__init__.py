"""Resources of one event loop that its peers share: the way into a log, time, places.

Each module has its theory at its top. Nothing here knows a protocol or a socket.
"""
