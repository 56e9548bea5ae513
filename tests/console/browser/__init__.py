"""The console in a real browser, headless Chromium, against a server in a process of its own."""
