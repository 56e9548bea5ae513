"""The questions, one file each, in the form of `benchmarks.questions`; `cases` gets an AmqpBench."""
