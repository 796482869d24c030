"""Other people's clients, each skipped where its package is missing."""
