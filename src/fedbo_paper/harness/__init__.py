"""What the experiments, the contests and the demo share: processes, intervals, screens, a store."""
