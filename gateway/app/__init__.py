"""The only place that wires things: it opens what the configuration names and keeps it running.

Read `opening` first, then `wiring`; each other module makes the parts of one idea, or does a command.
"""
