"""Model clients: two wire formats over one HTTP client, and a model that needs none."""
