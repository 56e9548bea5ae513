"""Accounts, tokens, issuers, and the guard that checks them."""
