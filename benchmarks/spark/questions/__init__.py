"""The questions, one file each, in the form of `benchmarks.questions`; `cases` gets a SparkBench."""
