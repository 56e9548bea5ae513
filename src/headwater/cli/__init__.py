"""The commands of `headwater`, one module for each group. A module is imported when it is used (`cli.main`)."""
