"""A worker: from a delivered command to its ack."""
