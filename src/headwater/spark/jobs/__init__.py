"""The pipelines, a module or a package each.

`python -m headwater.spark.jobs NAME --...` runs one, as `headwater pipeline` does.

A module here, or the module `job` of a package, is a pipeline if it has:

- a docstring: its first line is the summary, the rest is its help;
- `OPTIONS`, a frozen dataclass with `kw_only=True`, each field made by `pipeline.option.option`; its `__post_init__`
  may raise InvalidInput;
- `plan(options, run) -> list[str]`: what it would do, in lines; it may query the server, but changes nothing;
- `run(spark, options, run) -> Summary`: does it (see `headwater.spark.pipeline.run`);
- `EXAMPLES`, the arguments of some commands, as text;
- `IS_STREAM = False` if it runs once to the end of the log, without `--follow` or a checkpoint;
- `NEEDS_CHECKPOINT = False` if a stream stores its progress itself.

It imports pyspark only inside its functions: `headwater pipeline --help` imports all of them.
"""
