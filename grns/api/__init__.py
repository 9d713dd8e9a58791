"""The HTTP door: one file a noun. It decides who may come in, and reads and writes JSON; nothing else."""
