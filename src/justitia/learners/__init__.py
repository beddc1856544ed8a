"""Models of the label that decisions are made from, whatever their kind: public, and without the attribute."""
