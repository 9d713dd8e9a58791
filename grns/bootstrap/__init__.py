"""The only place where things are put together: from one process' settings and connections, what it runs."""
