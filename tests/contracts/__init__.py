"""What users of the package rely on, written down as data: everything else may change freely.

Each module here collects one part of the contract (Python names, verbs, settings, HTTP, folders, numbers)
from the running package. `data/` holds the same as JSON. A test compares the two. After a change that users
are meant to see, rewrite the data and look at the difference before it is committed:

    python -m tests.contracts.update                 all parts
    python -m tests.contracts.update verbs http      these parts
    git diff tests/contracts/data
"""
