"""What collaboration gave an agent: the explanation, its estimate by replay, and its figure."""
