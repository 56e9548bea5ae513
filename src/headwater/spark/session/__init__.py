"""The Spark session, and the Java below it."""
