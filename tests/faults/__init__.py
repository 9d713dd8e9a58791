"""Tests of whole processes under faults that take a while."""
