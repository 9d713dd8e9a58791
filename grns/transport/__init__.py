"""The broker: nothing here knows the store, and nothing here knows tasks."""
