"""How long each way through the server is: the files and the Python calls that an event takes, way by way."""
