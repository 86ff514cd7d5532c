"""What only a GPU can show: equality with the slow reference, rates beside transformers, runs on the card."""
