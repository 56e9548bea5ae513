"""The functions of futoin.evt."""
