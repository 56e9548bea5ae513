"""Events as Spark columns."""
