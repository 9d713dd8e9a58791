"""The dashboard in a real browser: `make browser`. It needs Debian's chromium, and the group `browser`."""
