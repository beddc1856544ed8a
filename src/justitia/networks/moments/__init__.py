"""Ask for a handful of noised sums, and learn the rest from what is public."""
