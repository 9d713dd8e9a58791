"""The event log, and the relay that publishes it."""
