"""FutoIn event streams: Headwater beside the FutoIn project's own server, and a client that costs little itself."""
