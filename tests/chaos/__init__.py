"""`make chaos`: real processes, real servers, faults drawn from a seed, and a checker from outside.

`journal.py` what happened outside of grns, written down by those who did it or saw it; `pools.py`,
`submitter.py`, `observer.py` those people; `proxy.py` the network between; `stage.py` everybody and
everything together; `faults.py` what can go wrong and how it heals; `nemesis.py` when; `checker.py`
what must be true afterwards, told from the journals and the tables alone.
"""
