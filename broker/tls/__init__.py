"""TLS of every port: certificates from files, read again when the files change."""
