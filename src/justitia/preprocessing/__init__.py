"""From tables to numbers: public features, labels and weights."""
