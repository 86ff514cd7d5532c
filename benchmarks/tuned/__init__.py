"""What pretraining is worth after fine-tuning; see `__main__`."""
