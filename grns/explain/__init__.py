"""Why a task is where it is, and what happened to it: from what was read, in sentences. Nothing is read here."""
