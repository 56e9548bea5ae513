"""The commands of `headwater`, a module for each kind. They are imported one by one, when used (`cli.main`)."""
