"""The C files and their twins in Python: which of them a process uses, and that both do the same.

Tests of one function and its twin stand in the room that uses them, parametrized by both.
"""
