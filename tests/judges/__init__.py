"""Servers that others wrote, as judges; each test skips where its server is not at hand."""
