"""`fedbo demo`: ten agents tune an SVM on their own share of the digits, alone and together."""
