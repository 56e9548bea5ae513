"""The parts of the pipeline `import`: the input files, their pieces, and how a task reads a piece."""
