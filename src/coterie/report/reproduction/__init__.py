"""The paper's tables and figures, made from the records of experiments alone."""
