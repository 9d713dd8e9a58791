"""What is worth knowing: facts, emitted once. Logs and metrics are leaves that read them."""
