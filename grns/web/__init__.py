"""The dashboard: HTML pages of what the API returns, one module per page."""
