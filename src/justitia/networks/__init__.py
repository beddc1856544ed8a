"""Networks: what any must be, and the default one by one rule."""
