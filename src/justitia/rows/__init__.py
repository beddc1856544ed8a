"""Row sources: the public rows of a fit, in memory, in Parquet files or in worker processes, and passes over them."""
