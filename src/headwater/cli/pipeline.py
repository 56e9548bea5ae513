"""`headwater pipeline`: the pipelines on Spark. No other command imports Spark."""

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
@click.option("--script", is_flag=True, help="Print the path of the file to pass to spark-submit.")
@click.pass_context
def pipeline(context: click.Context, script: bool) -> None:
    """Run a pipeline on Spark.

    Runs on this machine, or on a cluster with --master. It only needs the extra `spark`. The first SIGINT or SIGTERM
    stops it after the current batch, the second one immediately; it can be killed and restarted at any time.
    """
    if script:
        click.echo(SCRIPT)
    elif context.invoked_subcommand is None:
        click.echo(context.get_help())
