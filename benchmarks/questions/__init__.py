"""The questions, one file each. A question module has

- a docstring: what is asked, and what exactly each contender does for it;
- `TITLE`: the heading of its table;
- `cases(bench)`: the measured cases, each checking every answer it gets.
"""
