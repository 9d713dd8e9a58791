"""The dashboard: pages for people, made of what the API answers. One file a noun, and its templates."""
