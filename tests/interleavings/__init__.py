"""A model of the protocol, small enough to look at every interleaving of it.

`row.py` says what each guarded statement does to a task, by the table of `grns/model/task.py` and nothing
else; `world.py` puts tasks, log, broker and workers together and lists what may happen next, faults
included; `explore.py` looks at all of it. The same rows are walked on a real Postgres, statement by
statement, in `test_model_walks.py`: what the model says of a statement is what the statement does.
"""
