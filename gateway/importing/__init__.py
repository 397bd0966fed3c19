"""Takes over what people have with another program: its workspace, and what was said there."""
