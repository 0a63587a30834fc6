"""Ways out: lost rows and lost copies, lost majorities, migrations that do not get on."""
