"""The commands of this package: `fedbo demo`, `fedbo reproduce` and `fedbo data`."""
