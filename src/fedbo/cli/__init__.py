"""The command line: `app` mounts the commands, and each has its module.

`fedbo --help` is quick and needs no extra, because a command loads optuna, scikit-learn or
matplotlib only when it is called.
"""
