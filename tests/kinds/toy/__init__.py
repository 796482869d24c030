"""A kind of model in one folder: texts of a few words, whose embeddings and layers are two graphs."""
