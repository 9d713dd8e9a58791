"""`grns demo`: the whole of grns on real input, with an accident in the middle, checked to the last result.

`play.py` reads like the play: each step is a module of its own.
"""
