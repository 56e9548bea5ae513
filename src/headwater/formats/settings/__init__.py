"""Settings: declaration, parsing, and the settings that several packages share."""
