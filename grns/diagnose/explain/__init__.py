"""Why a task is where it is, and what happened to it: sentences, of what was read elsewhere."""
