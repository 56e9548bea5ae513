"""Benchmarks: each file in `questions` answers one question, with every contender side by side in one run."""
