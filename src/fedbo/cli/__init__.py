"""The command line: `app` mounts the commands. Optuna and matplotlib are loaded only if needed."""
