"""Files of the command line: tables, the attribute, facts beside a model."""
