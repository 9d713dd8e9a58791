"""Webhooks: their model, deliveries and sender."""
