"""Settings: declaration, parsing, and the settings that several rooms share."""
