"""What the pipeline `import` is made of: which files there are, their pieces, and what a task makes of a piece."""
