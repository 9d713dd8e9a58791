"""The doors: what the API, the dashboard and a bulk redrive take with a million tasks in the table. `make doors`."""
