"""Raft without IO."""
