"""What happens in the server itself, as events, and its entities as a management client sees them. No I/O."""
