"""FTN3 messages: coders, types, signatures."""
