"""What experiments and contests share: tasks, runs, intervals and stored results."""
