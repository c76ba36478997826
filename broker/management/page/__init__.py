"""The management page: its files, where its libraries come from, and how a node serves both."""
