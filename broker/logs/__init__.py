"""Outputs of the log: what their lines look like, which records they take, when files begin anew.

levels           names of levels and categories, and which records an output takes
formatting       plain lines and JSON
rotation_dates   `log.file.rotation.date`   pure
files            a file that is rotated by size and by date
syslog_message   messages of syslog                         pure
syslog           sends them to a server, in a thread

`broker.cli.log_output` puts them together.
"""
