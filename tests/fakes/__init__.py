"""Servers and parts that speak the real protocols, for tests."""
