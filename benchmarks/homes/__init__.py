"""What a home in PostgreSQL costs, and how long it takes until another server goes on."""
