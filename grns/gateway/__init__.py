"""HTTP workers and requests over NATS."""
