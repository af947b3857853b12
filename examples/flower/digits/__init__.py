"""Ten sites tune an SVM to their own handwritten digits, and help one another."""
