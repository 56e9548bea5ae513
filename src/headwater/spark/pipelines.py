"""Finds and describes the pipelines, which are the modules of `headwater.spark.jobs`.

from headwater.spark.pipelines import load
copy = load("copy")
copy.start(copy.options(source="orders", target="orders-copy"), is_once=True, checkpoint="/var/lib/copy")
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import InvalidInput
from . import jobs
from .options import nearest
from .pipeline.option import IS_OPTION, OptionHelp
from .pipeline.run import Ending, Run, Summary
from .pipeline.stop import StoppedAtOnce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NoSuchPipeline(InvalidInput):
    """There is no pipeline of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no pipeline {name!r}{nearest(name, names())}")


class Setting(NamedTuple):
    """One option of a pipeline."""

    name: str
    flag: str
    type: Any
    """Without the None of `X | None`."""
    is_repeated: bool
    is_required: bool
    default: Any
    about: OptionHelp


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline."""

    name: str
    summary: str
    """A sentence."""
    help: str
    options: type[Any]
    plan: Callable[[Any, Run], list[str]]
    run: Callable[[SparkSession, Any, Run], Summary]
    examples: Sequence[str]
    is_stream: bool
    needs_checkpoint: bool
    is_answer: bool = False
    """Whether its result goes to standard output; then its summary goes elsewhere."""

    def settings(self) -> list[Setting]:
        """Its options, in order."""
        hints = typing.get_type_hints(self.options)
        return [_setting(field, hints[field.name]) for field in dataclasses.fields(self.options)]

    def go(self, spark: SparkSession, options: Any, run: Run) -> Summary:
        """Run it in that session. A stream restarts after a transient failure; other pipelines retry step by step.
        Raises what the pipeline raises.
        """
        try:
            if self.is_stream:
                return run.retrying(lambda: self.run(spark, options, run))
            return self.run(spark, options, run)
        except StoppedAtOnce:
            return run.summary(Ending.INTERRUPTED)

    def start(self, options: Any, spark: SparkSession | None = None, **how: Any) -> Summary:
        """Run it, in the given session or in a new one; `how` are the arguments of `pipeline.run.Run`."""
        from .session.session import session

        spark = session() if spark is None else spark
        with Run(self.name, **how) as run:
            return self.go(spark, options, run)


def names() -> list[str]:
    """The names of all pipelines. Imports none of them."""
    return sorted(_modules())


def load(name: str) -> Pipeline:
    """The pipeline of that name. Raises NoSuchPipeline."""
    if (found := _modules().get(name)) is None:
        raise NoSuchPipeline(name)
    module = importlib.import_module(f".{found}", jobs.__name__)
    summary, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n")
    is_stream = getattr(module, "IS_STREAM", True)
    return Pipeline(
        name,
        summary,
        rest.strip(),
        module.OPTIONS,
        module.plan,
        module.run,
        tuple(module.EXAMPLES),
        is_stream,
        getattr(module, "NEEDS_CHECKPOINT", is_stream),
        getattr(module, "IS_ANSWER", False),
    )


def _modules() -> dict[str, str]:
    """The module of each name: with `_` for `-`, and a trailing `_` if the name is a Python keyword.

    The main module of a package is `job`.
    """
    found = [each for each in pkgutil.iter_modules(jobs.__path__) if not each.name.startswith("_")]
    return {
        each.name.removesuffix("_").replace("_", "-"): f"{each.name}.job" if each.ispkg else each.name for each in found
    }


def _setting(field: dataclasses.Field[Any], hint: Any) -> Setting:
    about: OptionHelp = field.metadata[IS_OPTION]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = (kind for kind in typing.get_args(hint) if kind is not type(None))
    is_repeated = typing.get_origin(hint) is tuple
    if is_repeated:
        hint = typing.get_args(hint)[0]
    is_required = field.default is dataclasses.MISSING
    flag = about.flag or f"--{field.name.replace('_', '-')}"
    default = None if is_required else field.default
    return Setting(field.name, flag, hint, is_repeated, is_required, default, about)
