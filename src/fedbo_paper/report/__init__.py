"""What the report of the paper's experiments says and shows."""
