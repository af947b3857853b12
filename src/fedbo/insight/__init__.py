"""What collaboration gave an agent: an explanation, an estimate by replay, and a figure."""
