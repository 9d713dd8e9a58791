"""Daemons that put tasks back, delete what is old and check the rest."""
