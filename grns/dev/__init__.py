"""Embedded servers, demo and benchmark."""
