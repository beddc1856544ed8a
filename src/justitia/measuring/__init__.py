"""Private measurement of any classifier's decisions: what is asked, what is bounded, what is said."""
