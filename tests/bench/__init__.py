"""Throughput and latency, on servers of its own."""
