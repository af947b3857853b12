"""`fedbo demo`: ten agents tune an SVM to their own handwritten digits, alone and together."""
