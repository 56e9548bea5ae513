"""The parts of the pipeline `export`: the columns of each format, payloads as columns, and an atomic directory."""
