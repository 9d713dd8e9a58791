"""The SDK of HTTP workers."""
