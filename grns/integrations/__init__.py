"""Small modules for frameworks: FastAPI, Django, Flask, pydantic-ai."""
