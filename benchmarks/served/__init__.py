"""Servers over sockets, side by side: `python -m benchmarks.served`. No other benchmark compares them."""
