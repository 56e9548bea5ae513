"""The state machine that decides which server of a home appends. No I/O."""
