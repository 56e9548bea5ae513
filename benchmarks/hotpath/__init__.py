"""What the work that matters costs, beside what it should cost: `python -m benchmarks.hotpath`, in five minutes."""
