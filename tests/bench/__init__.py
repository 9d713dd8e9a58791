"""What grns can do on this machine, held against its goals: throughput, latency, and what it costs.

`__main__` measures the scenarios (one module each), `goal` judges, `show` prints, `plot` draws.
"""
