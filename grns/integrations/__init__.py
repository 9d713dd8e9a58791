"""Small modules for web frameworks: FastAPI, Django, Flask."""
