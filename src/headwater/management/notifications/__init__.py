"""Server notifications, in the form that clients receive."""
