"""`headwater pipeline`: the pipelines on Spark. The only command that imports any of it."""

from __future__ import annotations

import click

from ..spark.commandline import SCRIPT, PipelineGroup
from .output import examples


@click.group(
    cls=PipelineGroup,
    invoke_without_command=True,
    epilog=examples(
        "headwater pipeline copy --from orders --to orders-copy --checkpoint ./copy --once",
        "headwater pipeline copy --help",
        "spark-submit --master yarn $(headwater pipeline --script) copy --from orders ...",
    ),
)
@click.option("--script", is_flag=True, help="Show the file that spark-submit is given.")
@click.pass_context
def pipeline(context: click.Context, script: bool) -> None:
    """Run a pipeline on Spark.

    On this machine, or on any cluster with --master. It needs the extra `spark` and nothing else. SIGINT and
    SIGTERM stop it after the batch that is running, a second one at once; a pipeline can be killed at any time, and
    started again.
    """
    if script:
        click.echo(SCRIPT)
    elif context.invoked_subcommand is None:
        click.echo(context.get_help())
