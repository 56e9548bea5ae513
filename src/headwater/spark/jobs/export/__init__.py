"""What the pipeline `export` is made of: the columns of each format, payloads as columns, and a directory at once."""
