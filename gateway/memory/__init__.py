"""Notes and what was said, as words that can be found again: all of it pure, but for the reading of files."""
