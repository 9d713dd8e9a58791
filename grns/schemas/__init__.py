"""Writes schemas/: JSON Schema, AsyncAPI and OpenAPI documents."""
