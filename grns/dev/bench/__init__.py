"""`grns admin bench`: how fast grns is on the user's own servers, measured where nothing of the user's is.

`course.py` reads like the measurement: each step is a module of its own.
"""
