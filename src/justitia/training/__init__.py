"""What every engine shares: the session of one fit, plans, checkpoints, diagnostics, and the paper's Section 5."""
