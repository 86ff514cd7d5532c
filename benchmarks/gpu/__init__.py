"""What only a GPU can tell: equality with the slow reference, rates beside transformers, runs on the card."""
