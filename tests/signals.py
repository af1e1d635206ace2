"""Signal handling that tests set for the programs they start."""

# Starts a program that hears SIGHUP, although nohup lets the tests, and all they start, ignore it.
HEARS_HANGUP = ("env", "--default-signal=HUP")
