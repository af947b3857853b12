"""The command line. `app` mounts the commands; each has a module, and most a screen beside it.

A command loads what it needs when it is called, so `fedbo --help` is quick and needs no extra.
"""
