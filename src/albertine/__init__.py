"""Albertine: parameter-shared text encoders, from raw text to a served model."""
