"""The audit log: who changed what, one line of JSON for each change (docs/audit-log.md).

actor     who asks for a change, and where that comes from   `Actor`, pure
changes   what a command of group 0 changes, before and after, without secrets   pure
trail     writes the lines   `begin`, `note`

Every change of group 0 passes `MetadataGroup.propose` at the node that was asked for it: it begins
a line before, and ends it with the result.
"""
