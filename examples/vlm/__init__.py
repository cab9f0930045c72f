"""A small vision-language model and the documents that it learns to read."""
