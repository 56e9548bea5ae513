"""Settings: how they are declared and read, and those that several rooms share."""
