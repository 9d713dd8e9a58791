"""Tests of whole processes, with doors."""
