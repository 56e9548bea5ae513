"""The client that blocks: its names are those of `headwater.client`."""
