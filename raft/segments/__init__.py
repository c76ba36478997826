"""The entries of a Raft group in files: each is written once, and read where it lies.

A log is a folder of segments, numbered as they were begun. Each holds the entries behind its base,
the last entry of the segment before it. Entries are appended to the last segment alone; the others
are sealed, and have an index beside them that says where each entry begins.

    log/7/0000000000.segment    entries 1 to 4,000
    log/7/0000000000.index
    log/7/0000000001.segment    entries 4,001 and later

Whole segments go when nothing in them is needed (`Segments.compact`). A truncation, which Raft
allows behind the commit index only, removes the segments above it and cuts one.

Files are written and synced by the journal's thread, before the records of the same turn
(`raft.ports.LogFiles`); nothing here waits for that. So a record of the journal proves what was
written to files with it, and files may hold more than the journal knows of: entries whose term no
hard state has, or the beginning of a log that replaces another. Both are resolved when a log is
opened. The core keeps what is not durable in memory,
so only what is durable is ever read back.

    records     bytes of segments and indexes, and how a segment is scanned
    segment     where the entries of one segment are
    entries     the log: what a group reads, appends, truncates and compacts

What a crash leaves is decided on by `records.scan`: a segment's end that was being written when the
process died is cut off, and what is damaged before a whole record is damage, which a replica must
not repair by forgetting (docs/protocol-rules.md P28).
"""
