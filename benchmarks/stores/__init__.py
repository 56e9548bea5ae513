"""The contenders, each behind the same few calls, so that a question can ask all of them the same thing.

`store` says what a log in this process must do, `server` what a log behind a socket must do; the other files are one
contender each. Nothing here measures.
"""
