"""The demo of several servers: three of one home in PostgreSQL, the flights, and a kill -9 in the middle of them."""
