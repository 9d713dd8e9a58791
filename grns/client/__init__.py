"""The client of applications, and durable subscriptions."""
