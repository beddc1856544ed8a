"""dual."""
