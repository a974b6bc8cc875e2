#!/usr/bin/env python3
"""jax_training.py, which takes its memory at once if its last argument is not 0."""
import jax_training  # noqa: F401  (it runs when it is imported)
