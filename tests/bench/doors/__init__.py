"""The doors: what API, dashboard and bulk redrives take with a million tasks in the table. `make doors`."""
