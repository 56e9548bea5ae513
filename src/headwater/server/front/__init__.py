"""The checks that every HTTP request passes before it reaches a front end."""
