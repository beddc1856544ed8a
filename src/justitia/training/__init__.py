"""Algorithm 1 and the session of one fit."""
