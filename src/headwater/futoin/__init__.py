"""FutoIn event streams: FTN18 1.1 (Event Stream), with FTN3 1.9 messages, over HTTP (FTN5 1.4) and WebSocket.

Existing FutoIn clients add, poll and receive the events of a log at `/futoin/{log}`; `docs/conformance/futoin.md`
describes conformance to each standard.
"""
