"""The small corpus of the tests of pretraining."""

from tests.pretraining.conftest import corpus as corpus
