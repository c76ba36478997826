"""What group 0 knows of streams beside their records: settings."""
