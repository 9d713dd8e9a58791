"""`grns demo`: a thousand real tasks, a worker killed among them, every result checked."""
