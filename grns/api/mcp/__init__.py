"""The Model Context Protocol: agents submit tasks, and work on them, with tools."""
