"""What each engine asks of the attribute, what it costs, and what it does with the answer."""
